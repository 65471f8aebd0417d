/** What the page shows: one set of signals that every view reads, mirrored in the address so that links and Back work. */

import { batch, createEffect, createMemo, createResource, createRoot, createSignal, on } from "solid-js";
import { api, forgetLoss } from "./api";
import { ColorBook, css, type Rgb, type ThemeName } from "./colors";
import { clampRange, fitTo, recentre } from "./range";
import type { EventCard, Gap, ProfileCard, Range } from "./types";
import { formatUrl, type Mark, parseUrl, type UrlState, type View } from "./url";

export type ColourBy = "operator" | "name";
type ThemeChoice = "system" | ThemeName;

function createState() {
  const initial = parseUrl(location.search);
  const [profileId, setProfileId] = createSignal(initial.profile);
  const [view, setViewSignal] = createSignal<View>(initial.view);
  const [range, setRangeSignal] = createSignal<Range | null>(initial.range);
  const [selected, setSelected] = createSignal(initial.event);
  const [base, setBaseSignal] = createSignal(initial.base);
  const [scope, setScopeSignal] = createSignal(initial.scope);
  const [marks, setMarksSignal] = createSignal(initial.marks);
  const [gap, setGap] = createSignal<Gap | null>(null);
  const [colourBy, setColourBy] = createSignal<ColourBy>("operator");
  const [notice, setNotice] = createSignal("");

  const [profiles, { refetch: listAgain }] = createResource(api.profiles);
  const [card] = createResource(profileId, api.profile);
  const [details] = createResource(
    () => (profileId() && selected() ? ([profileId()!, selected()!] as const) : null),
    ([p, id]) => api.event(p, id),
  );
  const [chain] = createResource(
    () => (profileId() && selected() ? ([profileId()!, selected()!] as const) : null),
    ([p, id]) => api.chain(p, id),
  );
  const [gaps] = createResource(
    () => (card.state === "ready" ? card()!.id : null),
    (p) => api.gaps(p, 2000),
  );

  /** A resource's value, without throwing when it failed: errors are shown where the data would be. */
  const ok = <T>(resource: { (): T | undefined; state: string; latest: T | undefined }): T | undefined =>
    resource.state === "ready" || resource.state === "refreshing" ? resource.latest : undefined;

  const readyCard = createMemo(() => {
    const c = ok(card);
    return c && c.id === profileId() ? c : undefined;
  });
  const whole = createMemo<Range>(() => ({ start: 0, end: Math.max(1, readyCard()?.span_ns ?? 1) }));

  /** The scope: one step, or everything. The ruler's zero and the overview follow it. */
  const home = createMemo<Range>(() => {
    const c = readyCard();
    if (!c) return { start: 0, end: 1 };
    const name = scope();
    if (name === "all") return whole();
    const step = name ? c.steps.find((s) => s.name === name) : undefined;
    const chosen = step ?? c.default_range;
    return chosen.end > chosen.start ? { start: chosen.start, end: chosen.end } : whole();
  });
  /** The scope with a little room at both ends: what the overview spans and an unzoomed timeline shows. */
  const homeView = createMemo<Range>(() => fitTo(home(), 0.97));
  const visible = createMemo<Range>(() => range() ?? homeView());

  // --- the address -------------------------------------------------------------------------------------------------
  const snapshot = (): UrlState => ({
    profile: profileId(),
    view: view(),
    range: range(),
    event: selected(),
    base: base(),
    scope: scope(),
    marks: marks(),
  });
  const address = (): string => location.pathname + formatUrl(snapshot());
  let settle: ReturnType<typeof setTimeout> | undefined;
  const replaceNow = (): void => {
    clearTimeout(settle);
    settle = undefined;
    history.replaceState(null, "", address());
  };
  /** A step Back can undo. */
  const discrete = (change: () => void): void => {
    if (settle !== undefined) replaceNow();
    batch(change);
    if (location.pathname + location.search !== address()) history.pushState(null, "", address());
  };
  /** Part of a movement: the address follows when it rests. */
  const continuous = (change: () => void): void => {
    batch(change);
    clearTimeout(settle);
    settle = setTimeout(replaceNow, 300);
  };
  addEventListener("popstate", () => {
    clearTimeout(settle);
    settle = undefined;
    const s = parseUrl(location.search);
    batch(() => {
      setProfileId(s.profile ?? profiles()?.[0]?.id ?? null);
      setViewSignal(s.view);
      setRangeSignal(s.range);
      setSelected(s.event);
      setBaseSignal(s.base);
      setScopeSignal(s.scope);
      setMarksSignal(s.marks);
      setGap(null);
    });
  });
  createEffect(() => {
    const list = ok(profiles);
    if (list?.length && !profileId()) {
      setProfileId(list[0]!.id);
      replaceNow();
    }
  });

  const bounded = (r: Range): Range => clampRange(r, whole());
  const setRange = (r: Range, how: "step" | "move" = "move"): void =>
    (how === "step" ? discrete : continuous)(() => setRangeSignal(bounded(r)));

  const select = (id: string | null, how: { recentre?: EventCard; fit?: EventCard; gap?: Gap } = {}): void =>
    discrete(() => {
      setSelected(id);
      setGap(how.gap ?? null);
      if (how.fit) setRangeSignal(bounded(fitTo(how.fit)));
      else if (how.recentre) setRangeSignal(bounded(recentre(visible(), how.recentre)));
    });

  // --- theme and colours -------------------------------------------------------------------------------------------
  const read = (key: string): string | null => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const [systemDark, setSystemDark] = createSignal(system.matches);
  system.addEventListener("change", (e) => setSystemDark(e.matches));
  const saved = read("neuronscope.theme");
  const [choice, setChoice] = createSignal<ThemeChoice>(saved === "light" || saved === "dark" ? saved : "system");
  const theme = createMemo<ThemeName>(() => {
    const c = choice();
    return c === "system" ? (systemDark() ? "dark" : "light") : c;
  });
  createEffect(() => {
    document.documentElement.dataset.theme = theme();
  });
  const toggleTheme = (): void => {
    const wanted: ThemeName = theme() === "dark" ? "light" : "dark";
    const next: ThemeChoice = wanted === (systemDark() ? "dark" : "light") ? "system" : wanted;
    setChoice(next);
    try {
      if (next === "system") localStorage.removeItem("neuronscope.theme");
      else localStorage.setItem("neuronscope.theme", next);
    } catch {
      // lasts as long as the page
    }
  };
  const book = new ColorBook();
  const [seeded, setSeeded] = createSignal(false);
  createEffect(() => {
    const list = ok(profiles);
    if (!list || seeded()) return;
    // every opened profile's operators in a fixed order, so that colours do not depend on what is looked at first
    const whole = (p: { id: string; span_ns: number }) =>
      api.operators(p.id, { start: 0, end: p.span_ns }).catch(() => null);
    void Promise.all(list.slice(0, 8).map(whole)).then((all) => {
      for (const operators of all)
        for (const row of operators?.rows.slice(0, 8) ?? []) if (row.device_time_ns > 0) book.slot(row.name);
      setSeeded(true);
    });
  });
  const color = (name: string | null | undefined): Rgb => book.color(name, theme());
  const cssColor = (name: string | null | undefined): string => css(color(name));

  // --- small things ------------------------------------------------------------------------------------------------
  let noticeTimer: ReturnType<typeof setTimeout> | undefined;
  const tell = (text: string): void => {
    setNotice(text);
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => setNotice(""), 3500);
  };
  const copy = async (text: string, what: string): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      tell(`${what} copied`);
    } catch {
      // no clipboard permission (plain http from another machine): the old way still works
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      tell(done ? `${what} copied` : "The browser did not allow copying");
    }
  };
  createEffect(
    on(view, (v) => {
      document.title = `Neuronscope · ${v}`;
    }),
  );

  const open = (id: string, at: { view?: View; event?: string } = {}): void =>
    discrete(() => {
      if (id !== profileId()) {
        forgetLoss();
        setMarksSignal([]);
        setProfileId(id);
        setRangeSignal(null);
        setScopeSignal(null);
      }
      setSelected(at.event ?? null);
      setGap(null);
      setViewSignal(at.view ?? view());
    });

  return {
    profiles,
    /** Asks for the opened profiles again, after one was added. */
    listAgain: async (): Promise<void> => void (await listAgain()),
    profileId,
    card,
    readyCard,
    details,
    chain,
    gaps,
    ok,
    view,
    visible,
    home,
    homeView,
    whole,
    scope,
    marks,
    selected,
    gap,
    base,
    colourBy,
    setColourBy,
    theme,
    toggleTheme,
    seeded,
    color,
    cssColor,
    notice,
    tell,
    copy,
    select,
    setRange,
    link: (): string => location.origin + address(),
    showHome: (): void => discrete(() => setRangeSignal(null)),
    setView: (v: View): void => discrete(() => setViewSignal(v)),
    setScope: (name: string | null): void =>
      discrete(() => {
        setScopeSignal(name);
        setRangeSignal(null);
      }),
    setMarks: (next: Mark[]): void => discrete(() => setMarksSignal([...next].sort((a, b) => a.at - b.at))),
    setBase: (id: string): void => discrete(() => setBaseSignal(id)),
    open,
    /** Opens the engines of the execution that an event belongs to. */
    openEngines: async (event: string): Promise<void> => {
      const p = profileId();
      const found = p ? await api.event(p, event).catch(() => null) : null;
      const inside = found?.execution?.device_profile;
      if (inside) open(inside, { view: "timeline" });
      else tell("The profile does not say what the engines did in this execution");
    },
    /** From the engines back to the execution they belong to; false where one is not inside. */
    openOuter: (): boolean => {
      const outer = readyCard()?.outer;
      if (outer) open(outer.profile, { view: "timeline", event: outer.event });
      return outer !== null && outer !== undefined;
    },
  };
}

export type AppState = ReturnType<typeof createState>;
export const app: AppState = createRoot(createState);

/** The slice's track, if the profile has it. */
export function trackOf(card: ProfileCard | undefined, id: number) {
  return card?.groups.flatMap((g) => g.tracks).find((t) => t.id === id);
}
