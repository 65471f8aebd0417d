/** Dependency arrows between slices, drawn on the overlay in CSS pixels. */

import type { Chain, ChainEvent } from "../types";

export interface Anchor {
  x: number;
  y: number;
}

export interface Arrow {
  from: Anchor;
  to: Anchor;
  waitNs: number;
}

export interface Placed {
  top: number;
  height: number;
}

const INSET = 8;
const MINIMUM_LENGTH = 10;

/**
 * Arrows of a chain. An arrow leaves a slice where the next one begins if that lies inside it, otherwise at the nearer end,
 * and arrives a little inside the start of its target. What one event caused on several cores at once is one arrow to the
 * first and from there on. `place` gives a slice's vertical extent, null when it has no lane.
 */
export function arrowsOf(
  chain: Chain,
  toX: (ns: number) => number,
  place: (event: ChainEvent) => Placed | null,
): Arrow[] {
  const byId = new Map(chain.events.map((e) => [e.id, e]));
  const cores = new Map<string, ChainEvent>();
  return chain.links.flatMap((link) => {
    let from = byId.get(link.from);
    const to = byId.get(link.to);
    if (from && to) {
      const execution = `${link.from} ${to.name} ${to.start}`;
      const core = cores.get(execution);
      if (core) from = core;
      cores.set(execution, to);
    }
    const a = from && place(from);
    const b = to && place(to);
    if (!from || !to || !a || !b) return [];
    const target = toX(to.start);
    const targetX = target + Math.min(INSET, Math.max(0, (toX(to.end) - target) / 2));
    const left = toX(from.start);
    const right = Math.max(left + 1, toX(from.end));
    const inset = Math.min(INSET, (right - left) / 2);
    const sourceX = Math.min(Math.max(targetX, left + inset), right - inset);
    const down = b.top >= a.top;
    if ((down ? b.top - a.top - a.height : a.top - b.top - b.height) < MINIMUM_LENGTH) return []; // nested right below
    return [
      {
        from: { x: sourceX, y: down ? a.top + a.height : a.top },
        to: { x: targetX, y: down ? b.top : b.top + b.height },
        waitNs: link.wait_ns,
      },
    ];
  });
}

export function drawArrow(g: CanvasRenderingContext2D, arrow: Arrow, color: string): void {
  const { from, to } = arrow;
  const down = to.y >= from.y ? 1 : -1;
  const tip = 7;
  const endY = to.y - down * tip;
  const bend = Math.max(8, Math.min(26, Math.abs(endY - from.y) * 0.6));
  g.strokeStyle = color;
  g.fillStyle = color;
  g.lineWidth = 1.6;
  g.beginPath();
  g.moveTo(from.x, from.y);
  g.bezierCurveTo(from.x, from.y + down * bend, to.x, endY - down * bend, to.x, endY);
  g.stroke();
  g.beginPath();
  g.moveTo(to.x, to.y);
  g.lineTo(to.x - 5, to.y - down * (tip + 1));
  g.lineTo(to.x + 5, to.y - down * (tip + 1));
  g.closePath();
  g.fill();
}
