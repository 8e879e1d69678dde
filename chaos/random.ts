/** Choices that a seed repeats: the same seed and the same questions give the same answers. */
export interface Random {
  /** A whole number from `min` to `max`, both included. */
  readonly integer: (min: number, max: number) => number;
  readonly oneOf: <Item>(items: readonly Item[]) => Item;
}

/** mulberry32: 32 bits of state are plenty for choosing where to strike. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const integer = (min: number, max: number): number => min + Math.floor(next() * (max - min + 1));
  return {
    integer,
    oneOf: (items) => {
      const item = items[integer(0, items.length - 1)];
      if (item === undefined) throw new Error("a choice out of nothing");
      return item;
    },
  };
}

/** A seed of a scenario's own, so that it is the same alone and among others. */
export function seedOf(seed: number, name: string): number {
  let hash = seed;
  for (let at = 0; at < name.length; at += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(at), 16_777_619);
  }
  return hash;
}
