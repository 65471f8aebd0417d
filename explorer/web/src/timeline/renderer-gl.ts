/** All slices in one instanced draw call; a pan or zoom changes three uniforms and uploads nothing. */

import { type Renderer, resizeCanvas, type Viewport } from "./renderer";
import type { Scene } from "./scene";

const VERTEX = `#version 300 es
layout(location = 0) in vec3 times;   // start, end, end of the hatched part; relative to the scene's origin
layout(location = 1) in vec2 place;   // top, height
layout(location = 2) in vec4 fill;
layout(location = 3) in vec4 edge;
layout(location = 4) in float flags;
uniform vec4 transform;               // origin in px, px per ns, scrollTop, device pixel ratio
uniform vec2 viewport;                // device px
out vec2 local;
flat out vec2 size;
flat out float hatchEnd;
flat out vec4 fillColor;
flat out vec4 edgeColor;
flat out int bits;
void main() {
  float ratio = transform.w;
  // far ends are cut outside the screen, where a float has no room for detail
  float limit = viewport.x / ratio + 8.0;
  float left = clamp(transform.x + times.x * transform.y, -8.0, limit);
  float right = clamp(transform.x + times.y * transform.y, -8.0, limit);
  right = max(right, left + 1.0);
  size = vec2(right - left, place.y) * ratio;
  hatchEnd = (clamp(transform.x + times.z * transform.y, -8.0, limit) - left) * ratio;
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  local = corner * size;
  vec2 px = vec2(left, place.x - transform.z) * ratio + local;
  bool outside = right < 0.0 || left > limit - 7.0;
  gl_Position = outside ? vec4(2.0, 2.0, 2.0, 1.0) : vec4(px / viewport * vec2(2.0, -2.0) + vec2(-1.0, 1.0), 0.0, 1.0);
  fillColor = fill;
  edgeColor = edge;
  bits = int(flags);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
in vec2 local;
flat in vec2 size;
flat in float hatchEnd;
flat in vec4 fillColor;
flat in vec4 edgeColor;
flat in int bits;
uniform vec4 transform;
out vec4 color;
float stripes(float period, float width) {
  float at = mod(gl_FragCoord.x - gl_FragCoord.y, period);
  float d = abs(at - period * 0.5);
  return 1.0 - smoothstep(width * 0.5 - 0.5, width * 0.5 + 0.7, d);
}
void main() {
  float ratio = transform.w;
  if ((bits & 2) != 0) {
    if (size.x < 3.0 * ratio) discard;
    color = vec4(edgeColor.rgb, 1.0) * stripes(6.0 * ratio, 1.0 * ratio) * 0.9;
    return;
  }
  if (size.x < 4.0 * ratio) {
    color = vec4(fillColor.rgb, 1.0);
    return;
  }
  float radius = min(2.5 * ratio, min(size.x, size.y) * 0.5);
  vec2 q = abs(local - size * 0.5) - size * 0.5 + radius;
  float d = length(max(q, 0.0)) + min(max(q.x, q.y), 0.0) - radius;
  vec3 c = fillColor.rgb;
  if (local.x < hatchEnd && hatchEnd > ratio) c = mix(c, vec3(1.0), stripes(8.0 * ratio, 1.6 * ratio) * 0.26);
  float border = ((bits & 8) != 0 ? 2.0 : 1.0) * ratio;
  float on = smoothstep(-border - 0.5, -border + 0.5, d);
  if ((bits & 1) != 0 && mod(local.x + local.y, 7.0 * ratio) > 4.0 * ratio) on = 0.0;
  c = mix(c, edgeColor.rgb, on);
  float cover = clamp(0.5 - d, 0.0, 1.0);
  color = vec4(c, 1.0) * cover;
}`;

const STRIDE = 32;

function compile(gl: WebGL2RenderingContext): WebGLProgram | null {
  const program = gl.createProgram();
  for (const [kind, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(kind);
    if (!shader) return null;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (gl.getProgramParameter(program, gl.LINK_STATUS)) return program;
  console.warn("timeline shader refused, drawing on the 2D canvas:", gl.getProgramInfoLog(program));
  return null;
}

/** Whether a program, not a GPU, draws: some browsers do not count that as the caveat they can be asked to refuse. */
function onCpu(gl: WebGL2RenderingContext): boolean {
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  return /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name);
}

/** A renderer on WebGL2, or null where the browser has none, emulates it (unless `evenSlow`) or refuses the program. */
export function createGlRenderer(canvas: HTMLCanvasElement, evenSlow = false): Renderer | null {
  // asked on a canvas of its own: a canvas that had a WebGL context can't fall back to 2D
  const probe = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: !evenSlow });
  if (!probe || (!evenSlow && onCpu(probe)) || !compile(probe)) return null;
  probe.getExtension("WEBGL_lose_context")?.loseContext();
  const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true });
  if (!gl) return null;

  let program: WebGLProgram | null = null;
  let transform: WebGLUniformLocation | null = null;
  let viewport: WebGLUniformLocation | null = null;
  let uploaded: Scene | null = null;
  let origin = 0;
  const setUp = (): void => {
    program = compile(gl);
    if (!program) return;
    gl.useProgram(program);
    transform = gl.getUniformLocation(program, "transform");
    viewport = gl.getUniformLocation(program, "viewport");
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    const attribute = (at: number, size: number, type: number, normalized: boolean, offset: number): void => {
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, type, normalized, STRIDE, offset);
      gl.vertexAttribDivisor(at, 1);
    };
    attribute(0, 3, gl.FLOAT, false, 0);
    attribute(1, 2, gl.FLOAT, false, 12);
    attribute(2, 4, gl.UNSIGNED_BYTE, true, 20);
    attribute(3, 4, gl.UNSIGNED_BYTE, true, 24);
    attribute(4, 1, gl.UNSIGNED_BYTE, false, 28);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    uploaded = null;
  };
  const upload = (scene: Scene): void => {
    const buffer = new ArrayBuffer(Math.max(1, scene.length) * STRIDE);
    const view = new DataView(buffer);
    origin = scene.tiles.length ? Math.min(...scene.tiles.map((t) => t.range.start)) : 0;
    for (let i = 0; i < scene.length; i++) {
      const at = i * STRIDE;
      view.setFloat32(at, scene.x0[i]! - origin, true);
      view.setFloat32(at + 4, scene.x1[i]! - origin, true);
      view.setFloat32(at + 8, scene.hatchEnd[i]! - origin, true);
      view.setFloat32(at + 12, scene.y[i]!, true);
      view.setFloat32(at + 16, scene.h[i]!, true);
      view.setUint32(at + 20, scene.fill[i]!, false);
      view.setUint32(at + 24, scene.edge[i]!, false);
      view.setUint8(at + 28, scene.flags[i]!);
    }
    gl.bufferData(gl.ARRAY_BUFFER, buffer, gl.DYNAMIC_DRAW);
    uploaded = scene;
  };
  let last: { scene: Scene; view: Viewport } | null = null;
  const draw = (scene: Scene, view: Viewport): void => {
    last = { scene, view };
    if (gl.isContextLost() || !program) return;
    resizeCanvas(canvas, view);
    if (uploaded !== scene) upload(scene);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform4f(transform, (origin - view.start) / view.nsPerPx, 1 / view.nsPerPx, view.scrollTop, view.ratio);
    gl.uniform2f(viewport, canvas.width, canvas.height);
    if (scene.length) gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, scene.length);
  };
  const lost = (event: Event): void => event.preventDefault();
  const restored = (): void => {
    setUp();
    if (last) draw(last.scene, last.view);
  };
  canvas.addEventListener("webglcontextlost", lost);
  canvas.addEventListener("webglcontextrestored", restored);
  setUp();
  return {
    kind: "webgl2",
    draw,
    dispose() {
      canvas.removeEventListener("webglcontextlost", lost);
      canvas.removeEventListener("webglcontextrestored", restored);
    },
  };
}
