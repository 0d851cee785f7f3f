// Elements, controls and pictures. Text is set as text, never read as markup.

/** An element with attributes (functions are listeners) and children (strings are text). */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Attributes of what can be pressed though it is no button: a part of a text, or of a picture. */
export const pressable = (label, press) => ({
  role: "button", tabindex: 0, "aria-label": label, click: press,
  keydown: (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    press(event);
  },
});

/** A range with its label and value: {element, value}. */
export function slider({ label, min, max, step = 1, value, show = String, input }) {
  const output = el("span", { class: "value" }, show(value));
  const range = el("input", {
    type: "range", min, max, step, value,
    input: () => {
      output.textContent = show(Number(range.value));
      range.setAttribute("aria-valuetext", output.textContent);
      input(Number(range.value));
    },
  });
  range.value = value;
  return {
    element: el("label", {}, label, output, el("br"), range),
    get value() { return Number(range.value); },
    set value(to) { range.value = to; output.textContent = show(Number(to)); },
  };
}

/** A choice of [value, name] pairs; `offer` changes the pairs, and keeps what is chosen and the focus. */
export function choice({ label, options, value, change }) {
  const select = el("select", { change: () => change(select.value) });
  const offer = (pairs) => {
    while (select.options.length > pairs.length) select.remove(pairs.length);
    pairs.forEach(([value, name], n) => {
      if (select.options[n] === undefined) select.append(el("option", { value: value }, name));
      const option = select.options[n];
      if (option.value !== String(value)) option.value = value;
      if (option.textContent !== name) option.textContent = name;
    });
  };
  offer(options);
  select.value = value;
  return {
    element: el("label", {}, label, el("br"), select), offer,
    get value() { return select.value; },
    set value(to) { select.value = to; },
  };
}

/** What a model of the site is called in lists. */
export const listed = ({ name, gone: deleted }) => (deleted ? `${name} (not there any more)` : name);

/** A choice among the other models of the site; `refresh` follows its list. */
export function beside({ site, model, value, change }) {
  const options = () => [["", "no other model"],
    ...site.models.map((each, n) => [String(n), listed(each)]).filter(([n]) => Number(n) !== model.number)];
  const available = (chosen) => (options().some(([n]) => n === chosen) ? chosen : "");
  const control = choice({ label: "Compare with", options: options(), value: available(value), change });
  const refresh = () => {
    control.offer(options());
    control.element.hidden = site.models.length < 2;
  };
  refresh();
  return { element: control.element, refresh, get value() { return control.value; } };
}

/** What a model without a vocabulary head is told by pages that show tokens it names. */
export const namesNone = ({ facts }) => facts.config.vocabulary_head === null
  ? `This model has no head that names tokens: it was trained for something else. See ${facts.task.trained ? "Task" : "Vectors"}.` : null;

/** What went wrong. */
export const alerted = (error) => el("p", { class: "notice", role: "alert" }, error.message);

/** Why an objective refuses, in its own words, with `more` below. */
export function refusal({ what, where, found, wanted, do: remedy }, ...more) {
  const line = (name, value) => (value ? el("p", { class: "small" }, el("span", { class: "soft" }, `${name}: `), value) : null);
  return el("div", { class: "notice" }, el("p", {}, el("strong", {}, `Refused: ${what}`)),
    line("where", where), line("found", found), line("wanted", wanted), line("what to do", remedy), more);
}

/** A box to tick. */
export function check({ label, value, change }) {
  const box = el("input", { type: "checkbox", change: () => change(box.checked) });
  box.checked = value;
  return { element: el("label", { class: "check" }, box, label), get value() { return box.checked; } };
}

/** Figures with what they count, [[figure, name], …]. */
export const figures = (items) => el("ul", { class: "figures" },
  items.map(([figure, name]) => el("li", {}, el("b", {}, figure), name)));

/** A table with a header cell for each column, and rows of cells. */
export const table = (head, rows) => el("div", { class: "wide" },
  el("table", { class: "words" }, el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));

/** A text of one's own; `input` is called when typing has paused. */
export function field({ label, value, input, rows = 2 }) {
  let waiting = 0;
  const area = el("textarea", {
    rows, spellcheck: "false", autocomplete: "off",
    input: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => input(area.value), 250);
    },
  });
  area.value = value;
  return {
    element: el("label", {}, label, area),
    get value() { return area.value; },
    set value(to) { area.value = to; },
  };
}

/** What a link says, where it is a number between two limits; else `usual`. */
export const within = (value, low, high, usual) => {
  const number = (value ?? "") === "" ? NaN : Number(value);
  return number >= low && number <= high ? number : usual;
};

/** The same of a whole number. */
export const wholeWithin = (value, low, high, usual) => {
  const number = within(value, low, high, usual);
  return Number.isInteger(number) ? number : usual;
};

export const percent = (p) =>
  p >= 0.9995 ? "100 %" : p >= 0.1 ? `${(100 * p).toFixed(1)} %` : p >= 1e-4 ? `${(100 * p).toFixed(2)} %`
    : p >= 1e-6 ? `${(100 * p).toFixed(4)} %` : p > 0 ? "< 0.0001 %" : "0 %";

export const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

/** What a token looks like: control characters and spaces as signs. */
export function shown(token) {
  return token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$|^ +$/g, (s) => "␣".repeat(s.length))
    .replace(/[\p{Cc}\p{Cf}]/gu, (c) => `U+${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** Horizontal bars, one for each {name, value, behind?, kind?, press?}: kind "truth" is green. The
 * names have the room that the longest of them needs, or as much as there is. */
export function bars(items, { label, most = 1, show = percent }) {
  const names = items.map((item) => cutTo(shown(item.name), 40)), values = items.map((item) => show(item.value));
  const height = 24, width = widthOfPictures(), right = Math.max(62, ...values.map((text) => widthOf(text) + 10));
  const left = Math.ceil(Math.min(0.45 * width, Math.max(SHORTEST_NAME, ...names.map((name) => widthOf(name) + 10))));
  const long = width - left - right;
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${items.length * height}`, width, role: items.some((i) => i.press) ? "group" : "img",
    "aria-label": label,
  });
  items.forEach((item, n) => {
    const y = n * height;
    const size = (value) => Math.max(0, Math.min(1, value / most)) * long;
    const bar = (kind, wide) => svg("rect", { class: kind, x: left, y: y + 3, width: wide, height: height - 7, rx: 3 });
    picture.append(svg("g", item.press ? pressable(`${item.name}, ${values[n]}`, item.press) : {},
      bar("track", long), item.behind === undefined ? null : bar("bar behind", size(item.behind)),
      bar(`bar ${item.kind ?? ""}`, size(item.value)),
      svg("text", { class: "end", x: left - 8, y: y + 17 }, fitting(names[n], left - 8)),
      svg("text", { class: "soft", x: left + long + 8, y: y + 17 }, values[n]),
      svg("title", {}, `${shown(item.name)}: ${values[n]}`)));
  });
  return picture;
}

const SHORTEST_NAME = 70;

/** How wide a picture is: on a telephone a wider one would be made small, and its words with it. */
export const widthOfPictures = () => (window.innerWidth < 560 ? 360 : 460);

const pen = globalThis.document?.createElement("canvas").getContext("2d");

/** How many pixels a text of a picture takes. */
export function widthOf(text) {
  pen.font = "13px system-ui, sans-serif";
  return pen.measureText(text).width;
}

/** The text, cut to a width. */
function fitting(text, width) {
  if (widthOf(text) <= width) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && widthOf(`${letters.join("")}…`) > width) letters.pop();
  return `${letters.join("")}…`;
}

export const cutTo = (text, most) => {
  const letters = Array.from(text);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
};

/** A picture with a caption and buttons that save it. */
export function figure(picture, caption, name) {
  return el("figure", {}, el("figcaption", {}, caption), el("div", { class: "wide" }, picture),
    el("div", { class: "save" },
      el("button", { type: "button", click: () => saveSvg(picture, name) }, "Save SVG"),
      el("button", { type: "button", click: () => savePng(picture, name) }, "Save PNG")));
}

// ------------------------------------------------------------------------------------------ saving
/** The picture by itself, with the colours that it has now. */
function standalone(picture) {
  const copy = picture.cloneNode(true);
  const box = picture.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  const elements = [picture, ...picture.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, n) => {
    const style = getComputedStyle(elements[n]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font", "text-anchor"]) {
      element.setAttribute(name, style.getPropertyValue(name));
    }
    element.removeAttribute("class");
  });
  const paper = getComputedStyle(document.body).backgroundColor;
  copy.prepend(svg("rect", { x: box.x, y: box.y, width: box.width, height: box.height, fill: paper }));
  return new XMLSerializer().serializeToString(copy);
}

function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function saveSvg(picture, name) {
  download(new Blob([standalone(picture)], { type: "image/svg+xml" }), `${name}.svg`);
}

async function savePng(picture, name) {
  const box = picture.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(picture))}`;
  await image.decode();
  const canvas = el("canvas", { width: Math.ceil(box.width * 2), height: Math.ceil(box.height * 2) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(blob, `${name}.png`));
}
