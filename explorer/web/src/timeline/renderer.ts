/** Draws a scene: WebGL2 where a GPU runs it, otherwise the 2D canvas, from the same columns and with the same look. */

import { css } from "../colors";
import { createGlRenderer } from "./renderer-gl";
import { FLAG_ESTIMATED, FLAG_GAP, FLAG_SELECTED, type Scene, unpack } from "./scene";

export interface Viewport {
  /** time at the left edge, nanoseconds */
  start: number;
  nsPerPx: number;
  scrollTop: number;
  /** CSS pixels */
  width: number;
  height: number;
  ratio: number;
}

export interface Renderer {
  readonly kind: "webgl2" | "2d";
  draw(scene: Scene, view: Viewport): void;
  dispose(): void;
}

/**
 * The renderer for a canvas. WebGL2 is taken where a GPU runs it: emulated on the CPU it is about ten times slower than the
 * 2D canvas (153 against 17 ms a frame for 6,000 items on two cores). `asked` forces one of the two.
 */
export function createRenderer(canvas: HTMLCanvasElement, asked: string | null = null): Renderer {
  const gl = asked === "2d" ? null : createGlRenderer(canvas, asked === "webgl2");
  return gl ?? create2dRenderer(canvas);
}

/** Gives the canvas the size of the viewport in device pixels; true when it changed. */
export function resizeCanvas(canvas: HTMLCanvasElement, view: Pick<Viewport, "width" | "height" | "ratio">): boolean {
  const width = Math.max(1, Math.round(view.width * view.ratio));
  const height = Math.max(1, Math.round(view.height * view.ratio));
  if (canvas.width === width && canvas.height === height) return false;
  canvas.width = width;
  canvas.height = height;
  return true;
}

function create2dRenderer(canvas: HTMLCanvasElement): Renderer {
  const g = canvas.getContext("2d")!;
  const hatch = (x: number, y: number, w: number, h: number, step: number): void => {
    g.save();
    g.beginPath();
    g.rect(x, y, w, h);
    g.clip();
    g.beginPath();
    for (let o = Math.floor((x + y) / step) * step; o < x + w + y + h; o += step) {
      g.moveTo(o - y, y);
      g.lineTo(o - y - h, y + h);
    }
    g.stroke();
    g.restore();
  };
  return {
    kind: "2d",
    draw(scene, view) {
      resizeCanvas(canvas, view);
      g.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
      g.clearRect(0, 0, view.width, view.height);
      for (let i = 0; i < scene.length; i++) {
        const y = scene.y[i]! - view.scrollTop;
        const h = scene.h[i]!;
        if (y > view.height || y + h < 0) continue;
        const left = (scene.x0[i]! - view.start) / view.nsPerPx;
        const right = (scene.x1[i]! - view.start) / view.nsPerPx;
        if (right < -1 || left > view.width) continue;
        const x = Math.max(-4, left);
        const w = Math.max(1, Math.min(view.width + 4, right) - x);
        const flags = scene.flags[i]!;
        const edge = css(unpack(scene.edge[i]!));
        g.lineWidth = 1;
        if (flags & FLAG_GAP) {
          g.strokeStyle = edge;
          if (w > 3) hatch(x, y, w, h, 6);
          continue;
        }
        g.fillStyle = css(unpack(scene.fill[i]!));
        if (w < 4) {
          g.fillRect(x, y, w, h);
          continue;
        }
        g.beginPath();
        g.roundRect(x, y, w, h, Math.min(2.5, w / 2));
        g.fill();
        const launch = Math.min(view.width + 4, (scene.hatchEnd[i]! - view.start) / view.nsPerPx) - x;
        if (launch > 1) {
          g.strokeStyle = "rgb(255 255 255 / 0.28)";
          g.lineWidth = 1.5;
          hatch(x, y, Math.min(launch, w), h, 8);
          g.lineWidth = 1;
        }
        g.strokeStyle = edge;
        if (flags & FLAG_ESTIMATED) g.setLineDash([4, 3]);
        if (flags & FLAG_SELECTED) g.lineWidth = 2;
        g.beginPath();
        g.roundRect(x + 0.5, y + 0.5, w - 1, h - 1, 2);
        g.stroke();
        g.setLineDash([]);
      }
    },
    dispose() {},
  };
}
