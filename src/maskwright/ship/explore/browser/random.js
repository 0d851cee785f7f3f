// Randomness as a function, as `maskwright.base.randomness` has it: the same keys give the same numbers
// in Python and here. Sixty-four bits are BigInts.

const FULL = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;

function mix(bits) {
  let z = bits & FULL;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & FULL;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & FULL;
  return z ^ (z >> 31n);
}

/** The key of a purpose (`PURPOSES` of keys.json) and counters, which are BigInts or numbers. */
export function key(purpose, ...counters) {
  let state = BigInt(purpose);
  for (const counter of counters) {
    state = mix(((state ^ mix((BigInt(counter) + GOLDEN) & FULL)) + GOLDEN) & FULL);
  }
  return state;
}

/** The first numbers in [0, 1) of a key. */
export function uniforms(of, count) {
  return Array.from({ length: count }, (_, i) =>
    Number(mix((of + BigInt(i + 1) * GOLDEN) & FULL) >> 11n) * 2 ** -53);
}

// --------------------------------------------------------------------------------- names of prompts
const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

const turned = (x, by) => ((x >> by) | (x << (64n - by))) & FULL;

/** BLAKE2b of bytes (RFC 7693) with a digest of eight bytes, read as a little-endian number. */
export function blake2b(bytes) {
  const h = [...IV];
  h[0] ^= 0x01010000n ^ 8n;
  const blocks = Math.max(1, Math.ceil(bytes.length / 128));
  const padded = new Uint8Array(blocks * 128);
  padded.set(bytes);
  const view = new DataView(padded.buffer);
  for (let block = 0; block < blocks; block++) {
    const last = block === blocks - 1;
    const words = Array.from({ length: 16 }, (_, i) => view.getBigUint64(block * 128 + i * 8, true));
    const v = [...h, ...IV];
    v[12] ^= BigInt(last ? bytes.length : (block + 1) * 128);
    if (last) v[14] ^= FULL;
    const round = (a, b, c, d, x, y) => {
      v[a] = (v[a] + v[b] + x) & FULL;
      v[d] = turned(v[d] ^ v[a], 32n);
      v[c] = (v[c] + v[d]) & FULL;
      v[b] = turned(v[b] ^ v[c], 24n);
      v[a] = (v[a] + v[b] + y) & FULL;
      v[d] = turned(v[d] ^ v[a], 16n);
      v[c] = (v[c] + v[d]) & FULL;
      v[b] = turned(v[b] ^ v[c], 63n);
    };
    for (let i = 0; i < 12; i++) {
      const s = SIGMA[i % 10].map((place) => words[place]);
      round(0, 4, 8, 12, s[0], s[1]);
      round(1, 5, 9, 13, s[2], s[3]);
      round(2, 6, 10, 14, s[4], s[5]);
      round(3, 7, 11, 15, s[6], s[7]);
      round(0, 5, 10, 15, s[8], s[9]);
      round(1, 6, 11, 12, s[10], s[11]);
      round(2, 7, 8, 13, s[12], s[13]);
      round(3, 4, 9, 14, s[14], s[15]);
    }
    for (let i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
  }
  return h[0];
}

/** What a prompt (and its source) is called in a key: the hash of its ids. */
export function nameOf(prompt, source = null) {
  const ids = source === null ? prompt : [...source, -1, ...prompt];
  const view = new DataView(new ArrayBuffer(8 * ids.length));
  ids.forEach((id, i) => view.setBigInt64(8 * i, BigInt(id), true));
  return blake2b(new Uint8Array(view.buffer));
}
