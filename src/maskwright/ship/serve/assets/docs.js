"use strict";

// A value of the shape that a schema has, for a first request.
function example(schema, all, depth) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(all[schema.$ref.split("/").pop()], all, depth + 1);
  if ("default" in schema) return schema.default;
  if ("example" in schema) return schema.example;
  if (schema.examples && schema.examples.length) return schema.examples[0];
  const several = schema.anyOf || schema.oneOf || schema.allOf;
  if (several) return example(several[0], all, depth + 1);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "object" || schema.properties) {
    const made = {};
    const needed = schema.required || [];
    for (const [name, own] of Object.entries(schema.properties || {})) {
      if (needed.includes(name)) made[name] = example(own, all, depth + 1);
    }
    return made;
  }
  if (schema.type === "array") return [example(schema.items, all, depth + 1)];
  return { string: "a text", integer: 1, number: 1, boolean: false }[schema.type] ?? null;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function shown(path, method, route, all) {
  const box = document.createElement("details");
  const head = document.createElement("summary");
  head.append(element("span", method.toUpperCase(), "method"), element("code", path));
  head.append(element("span", " " + (route.summary || "")));
  box.append(head, element("p", route.description || ""));
  const content = route.requestBody && route.requestBody.content["application/json"];
  if (content) {
    const body = JSON.stringify(example(content.schema, all, 0));
    const quoted = body.replaceAll("'", "'\\''");
    box.append(element("pre",
      "curl " + location.origin + path + " -H 'Content-Type: application/json' -d '" + quoted + "'"));
    box.append(element("pre", JSON.stringify(content.schema, null, 2)));
    box.querySelectorAll("pre").forEach((part) => { part.tabIndex = 0; });
  } else {
    box.append(element("pre", "curl " + location.origin + path));
  }
  return box;
}

function model(served) {
  const box = document.createElement("li");
  box.append(element("strong", served.name), element("div", served.what, "what"));
  if (served.task) box.append(element("div", "Trained for " + served.task.replaceAll("-", " ")));
  box.append(element("div", "Answers " + served.abilities.map((name) => name.replaceAll("_", " ")).join(", ")));
  return box;
}

const asked = ["/openapi.json", "/docs/served.json"].map((path) => fetch(path).then((answer) => answer.json()));
Promise.all(asked).then(([page, served]) => {
  const all = (page.components && page.components.schemas) || {};
  document.getElementById("models").replaceChildren(...served.models.map(model));
  const place = document.getElementById("routes");
  const unanswered = new Set(served.unanswered);
  for (const [path, methods] of Object.entries(page.paths)) {
    if (unanswered.has(path) || unanswered.has(path.replace("/{model}/", "/"))) continue;
    for (const [method, route] of Object.entries(methods)) {
      place.append(shown(path, method, route, all));
    }
  }
}).catch((error) => {
  document.getElementById("routes").textContent = String(error);
});
