/** The page's interface for tests and scripts in the browser's console. */
interface Window {
  __neuronscope?:
    | {
        /**
         * Slices and gaps on screen with their rectangles in client coordinates (CSS pixels): `id`, `gap`, `name`, `op`,
         * `track`, `trackLabel`, `lane`, `start`, `duration`, `launch` (ns), `count`, `busy`, `estimated`, `rect`.
         */
        slices(): (import("./timeline/controller").Item & {
          trackLabel: string;
          rect: { x: number; y: number; width: number; height: number };
        })[];
        /** where the waits of the chain's arrows are written */
        labels(): { x: number; y: number; width: number; height: number }[];
        /** true when everything in view is loaded and drawn */
        idle(): boolean;
        renderer: string;
      }
    | undefined;
}
