/** What the keyboard can ask of the timeline while it is on the page. */

export interface TimelineCommands {
  zoom(factor: number): void;
  pan(share: number): void;
  nextGap(): void;
  mark(): void;
  firstSlice(): string | null;
  /** true when there was a measurement to clear */
  clearMeasure(): boolean;
}

let current: TimelineCommands | null = null;

export const setTimelineCommands = (commands: TimelineCommands | null): void => {
  current = commands;
};
export const timelineCommands = (): TimelineCommands | null => current;
