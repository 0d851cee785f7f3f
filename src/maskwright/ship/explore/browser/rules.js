// Who may see whom, as in `maskwright.model.nn.mask`: rules over (query, key), their matrices, and what a
// position can feel of another through the layers.

export const pattern = (name, window = null) => (query, key) =>
  (name !== "causal" || key <= query) &&
  (window === null || (query - key <= window[0] && key - query <= window[1]));

/** Blocks of `size` tokens, counted in each run of one document: the first and the last one see all
 * and are seen by all, others see their neighbours; runs of `full` blocks or fewer are read in full,
 * and rows of so many. */
export function inBlocks([size, full], documents) {
  if (documents.length <= full * size) return () => true;
  const begins = [], block = [], last = [];
  documents.forEach((document, n) => {
    begins.push(document === documents[n - 1] ? begins[n - 1] : n);
    block.push(Math.floor((n - begins[n]) / size));
    last[begins[n]] = block[n];
  });
  return (query, key) => {
    const end = last[begins[query]], [q, k] = [block[query], block[key]];
    return begins[query] === begins[key]
      && (end < full || Math.abs(q - k) <= 1 || [0, end].includes(q) || [0, end].includes(k));
  };
}

export const prefix = (length) => (query, key) => key < length;

/** Document 0 is padding, which is unseen. */
export const sameDocument = (ours, theirs = ours) => (query, key) => ours[query] === theirs[key] && theirs[key] !== 0;

export const both = (...rules) => (query, key) => rules.every((rule) => rule(query, key));
export const either = (...rules) => (query, key) => rules.some((rule) => rule(query, key));

/** One array of 0 and 1 per query. */
export function dense(rule, queries, keys = queries) {
  return Array.from({ length: queries }, (_, query) => Uint8Array.from({ length: keys }, (_, key) => rule(query, key) ? 1 : 0));
}

/** The boolean product: what the rows of `first` reach through `second`. */
export function product(first, second) {
  const width = second[0]?.length ?? 0;
  return first.map((row) => {
    const visible = new Uint8Array(width);
    row.forEach((seen, middle) => {
      if (seen) for (let key = 0; key < width; key++) visible[key] |= second[middle][key];
    });
    return visible;
  });
}

const joined = (first, second) => first.map((row, n) => row.map((seen, key) => seen | second[n][key]));
const diagonal = (length) => dense((query, key) => query === key, length);

/** Through layers with these matrices, in order; each with its diagonal, because the residual
 * always carries a position on. */
export function reach(matrices, length) {
  return matrices.reduce((felt, matrix) => product(joined(matrix, diagonal(length)), felt), diagonal(length));
}

/** What a decoder feels of the source: each layer sees the encoder's last states across. */
export function reachAcross(matrices, across, encoder, length) {
  const seen = product(across, encoder);
  return matrices.reduce((felt, matrix) => joined(product(joined(matrix, diagonal(length)), felt), seen),
    across.map((row) => new Uint8Array(row.length)));
}

/** The matrices of an example in a network: {encoder, decoder, across}, lists by layer, null where
 * there is no such stack. `stacks` has [pattern, left, right, blocks] by layer; `narrow` takes the
 * place of every window, and makes blocks of one token. */
export function matrices(stacks, example, narrow = null) {
  const length = example.tokens.length, { decoder } = example;
  const rule = ([name, left, right, blocks]) => (blocks === null
    ? pattern(name, left === null ? null : narrow ?? [left, right])
    : inBlocks(narrow === null ? blocks : [1, 5], example.documents));
  const facts = sameDocument(example.documents);
  if (decoder !== null) {
    const decoderLength = decoder.tokens.length;
    return {
      encoder: stacks.encoder.map((layer) => dense(both(rule(layer), facts), length)),
      decoder: stacks.decoder.map((layer) => dense(both(rule(layer), sameDocument(decoder.documents)), decoderLength)),
      across: dense(sameDocument(decoder.documents, example.documents), decoderLength, length),
    };
  }
  const seen = prefix(example.prefix ?? 0), order = either(pattern("causal"), seen);
  const alone = (layer) => {
    if (example.prefix === null) return both(rule(layer), facts);
    // In a decoder a prefix is visible in addition to the pattern, also outside a window.
    return stacks.encoder ? both(rule(layer), order, facts) : both(either(rule(layer), seen), facts);
  };
  const side = stacks.encoder ? "encoder" : "decoder";
  return { encoder: null, decoder: null, across: null, [side]: stacks[side].map((layer) => dense(alone(layer), length)) };
}
