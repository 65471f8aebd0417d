/** Files a user chose or dropped, with their places in the upload. */

/** A file and where it stands below the upload's folder. */
export interface Chosen {
  path: string;
  file: File;
}

/** What an upload is called and what is sent; `left` counts files that can be no part of a profile. */
export interface Selection {
  name: string;
  files: Chosen[];
  left: number;
}

/** What of the chosen files is sent: one file as it is, of several those whose names say that they can be read. */
export function selectFiles(chosen: Chosen[], endings: readonly string[]): Selection {
  if (chosen.length === 1) return { name: nameOf(chosen), files: chosen, left: 0 };
  const files = chosen.filter(
    (one) =>
      endings.some((ending) => one.path.toLowerCase().endsWith(ending)) &&
      !one.path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX"),
  );
  return { name: nameOf(chosen), files: withoutTop(files), left: chosen.length - files.length };
}

/** The folder all files lie in, else the first file's name without its endings. */
function nameOf(chosen: Chosen[]): string {
  const first = chosen[0]?.path ?? "upload";
  const top = commonTop(chosen);
  if (top) return top;
  const name = first.split("/").at(-1) ?? first;
  return name.replace(/(\.pt)?(\.trace)?(\.json|\.tar)?(\.gz|\.zip|\.zst|\.bz2|\.xz)?$/i, "") || name;
}

function commonTop(chosen: Chosen[]): string | null {
  const tops = new Set(chosen.map((one) => (one.path.includes("/") ? one.path.split("/")[0] : "")));
  const [only] = [...tops];
  return tops.size === 1 && only ? only : null;
}

function withoutTop(files: Chosen[]): Chosen[] {
  const top = commonTop(files);
  return top ? files.map((one) => ({ ...one, path: one.path.slice(top.length + 1) })) : files;
}

/** Files of an input element; those of a chosen folder come with their places. */
export const ofInput = (list: FileList): Chosen[] =>
  [...list].map((file) => ({ path: file.webkitRelativePath || file.name, file }));

/** Files of a drop, folders walked through. Must be called while the drop is handled: its items are gone afterwards. */
export async function ofDrop(data: DataTransfer): Promise<Chosen[]> {
  const entries = [...data.items].flatMap((item) => item.webkitGetAsEntry() ?? []);
  if (!entries.length) return [...data.files].map((file) => ({ path: file.name, file }));
  const found: Chosen[] = [];
  for (const entry of entries) await walk(entry, "", found);
  return found;
}

async function walk(entry: FileSystemEntry, place: string, found: Chosen[]): Promise<void> {
  const path = place ? `${place}/${entry.name}` : entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((ok, no) => (entry as FileSystemFileEntry).file(ok, no));
    found.push({ path, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  while (true) {
    const some = await new Promise<FileSystemEntry[]>((ok, no) => reader.readEntries(ok, no)); // at most 100 at once
    if (!some.length) return;
    for (const one of some) await walk(one, path, found);
  }
}
