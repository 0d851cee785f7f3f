// Vectors: the two directions in which they differ most, and which are near each other.

const BLOCK = 8; // directions that are followed at once, so that the first two are found soon
const TURNS = 2000;
const CLOSE = 1e-11;

/** Principal components of vectors, exactly: {points: [[x, y], …], shares: [of the variance, …],
 * directions, centre}. Signs are such that the farthest point of each axis lies on its positive
 * side. */
export function pca(vectors, count = 2) {
  const rows = vectors.length, width = rows ? vectors[0].length : 0;
  const centre = new Float64Array(width);
  for (const vector of vectors) for (let i = 0; i < width; i++) centre[i] += vector[i] / rows;
  const x = vectors.map((vector) => Float64Array.from(vector, (value, i) => value - centre[i]));
  const byRows = rows <= width;
  const matrix = byRows ? gram(x) : gram(transposed(x, width));
  const size = matrix.length;
  const total = matrix.reduce((sum, row, n) => sum + row[n], 0);
  const eigenpairs = largest(matrix, Math.min(count, size));
  const directions = eigenpairs.map(({ value, vector }) => {
    if (!byRows) return vector;
    const axis = new Float64Array(width), scale = value > 0 ? 1 / Math.sqrt(value) : 0;
    for (let n = 0; n < rows; n++) for (let i = 0; i < width; i++) axis[i] += vector[n] * x[n][i] * scale;
    return axis;
  });
  while (directions.length < count) directions.push(new Float64Array(width));
  for (const direction of directions) {
    let far = 0;
    for (const row of x) {
      const value = product(row, direction);
      if (Math.abs(value) > Math.abs(far) * (1 + 1e-9)) far = value;
    }
    if (far < 0) for (let i = 0; i < width; i++) direction[i] = -direction[i];
  }
  return {
    points: x.map((row) => directions.map((direction) => product(row, direction))),
    shares: directions.map((_, n) => (total > 0 && eigenpairs[n] ? Math.max(0, eigenpairs[n].value) / total : 0)),
    directions, centre,
  };
}

/** Where a vector that was not among them stands. */
export const projected = ({ directions, centre }, vector) =>
  directions.map((direction) => product(Float64Array.from(vector, (value, i) => value - centre[i]), direction));

export function product(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

const gram = (rows) => {
  const distances = rows.map(() => new Float64Array(rows.length));
  for (let a = 0; a < rows.length; a++) {
    for (let b = 0; b <= a; b++) distances[a][b] = distances[b][a] = product(rows[a], rows[b]);
  }
  return distances;
};

const transposed = (rows, width) =>
  Array.from({ length: width }, (_, i) => Float64Array.from(rows, (row) => row[i]));

/** The largest eigenvalues of a symmetric matrix, with their vectors, by iteration of a subspace. */
function largest(matrix, count) {
  const size = matrix.length, block = Math.min(size, count + BLOCK);
  // Any start will do that is orthogonal to none of them; this one is the same each time.
  let basis = orthonormal(Array.from({ length: block }, (_, n) =>
    Float64Array.from({ length: size }, (_, i) => Math.sin(1 + (i + 1) * (n + 1) * 0.7390851 + i * i * 0.013))));
  for (let turn = 0; ; turn++) {
    const images = basis.map((vector) => Float64Array.from(matrix, (row) => product(row, vector)));
    const { values, vectors } = jacobi(basis.map((a) => images.map((b) => product(a, b))));
    const turned = (some) => vectors.map((vector) => {
      const projected = new Float64Array(size);
      vector.forEach((weight, n) => {
        for (let i = 0; i < size; i++) projected[i] += weight * some[n][i];
      });
      return projected;
    });
    const [now, after] = [turned(basis), turned(images)];
    const away = Math.max(...values.slice(0, count).map((value, n) =>
      Math.sqrt(after[n].reduce((sum, each, i) => sum + (each - value * now[n][i]) ** 2, 0))));
    if (turn === TURNS || away <= CLOSE * Math.max(Math.abs(values[0]), 1e-300)) {
      return values.slice(0, count).map((value, n) => ({ value, vector: now[n] }));
    }
    basis = orthonormal(after);
  }
}

/** Gram and Schmidt, twice; a vector of nothing is replaced by an axis. */
function orthonormal(vectors) {
  const basis = [];
  for (const [n, vector] of vectors.entries()) {
    let residual = vector;
    for (let attempt = 0; attempt <= residual.length; attempt++) {
      const before = Math.sqrt(product(residual, residual));
      for (let twice = 0; twice < 2; twice++) {
        for (const other of basis) {
          const share = product(residual, other);
          residual = residual.map((value, i) => value - share * other[i]);
        }
      }
      const norm = Math.sqrt(product(residual, residual));
      if (norm > 1e-12 * before && norm > 1e-280) {
        basis.push(residual.map((value) => value / norm));
        break;
      }
      residual = new Float64Array(vector.length);
      residual[(n + attempt) % vector.length] = 1;
    }
  }
  return basis;
}

/** All eigenvalues of a small symmetric matrix, falling, and their vectors. */
function jacobi(symmetric) {
  const size = symmetric.length;
  const a = symmetric.map((row) => Float64Array.from(row));
  const v = symmetric.map((_, n) => Float64Array.from({ length: size }, (_, i) => (i === n ? 1 : 0)));
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0, all = 0;
    for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
      all += a[i][j] ** 2;
      if (i !== j) off += a[i][j] ** 2;
    }
    if (off <= 1e-30 * all) break;
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) {
      if (a[p][q] === 0) continue;
      const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
      const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
      const c = 1 / Math.sqrt(t * t + 1), s = t * c;
      for (let k = 0; k < size; k++) {
        const [x, y] = [a[k][p], a[k][q]];
        a[k][p] = c * x - s * y;
        a[k][q] = s * x + c * y;
      }
      for (let k = 0; k < size; k++) {
        const [x, y] = [a[p][k], a[q][k]];
        a[p][k] = c * x - s * y;
        a[q][k] = s * x + c * y;
      }
      for (let k = 0; k < size; k++) {
        const [x, y] = [v[p][k], v[q][k]];
        v[p][k] = c * x - s * y;
        v[q][k] = s * x + c * y;
      }
    }
  }
  const order = a.map((_, n) => n).sort((x, y) => a[y][y] - a[x][x]);
  return { values: order.map((n) => a[n][n]), vectors: order.map((n) => Array.from(v[n])) };
}

/** A vector at length 1; one of zeros stays what it is. */
export function unit(vector) {
  const norm = Math.sqrt(product(vector, vector));
  return norm > 0 ? vector.map((value) => value / norm) : vector;
}

/** The cosine of two vectors; 0 where one of them is nothing. */
export function cosine(a, b) {
  const norms = Math.sqrt(product(a, a) * product(b, b));
  return norms > 0 ? product(a, b) / norms : 0;
}

/** The vectors that are nearest by cosine, [{n, cosine}, …], the nearest first. */
export function nearest(vectors, to, count, without = -1) {
  return vectors.map((vector, n) => ({ n, cosine: cosine(vector, to) }))
    .filter(({ n }) => n !== without)
    .sort((a, b) => b.cosine - a.cosine || a.n - b.n).slice(0, count);
}

// ------------------------------------------------------------------------------ words of a vocabulary
const FEWEST = 30;

/** Ids of tokens that are words by themselves, in the order of the vocabulary; of a vocabulary
 * without such, all tokens but the special ones. */
export function wordsOf(words, pieceOf) {
  const all = words.tokens.map((_, id) => id).filter((id) => !words.special.has(id));
  const prefix = words.json.model.continuing_subword_prefix;
  const plain = (id) => pieceOf(words, id).trim();
  let candidates = all.filter((id) => /^\p{L}{2,}$/u.test(plain(id)) && !(prefix && words.tokens[id].startsWith(prefix)));
  const spaced = candidates.filter((id) => pieceOf(words, id).startsWith(" "));
  if (spaced.length >= FEWEST) candidates = spaced;
  return candidates.length >= FEWEST ? candidates : all;
}
