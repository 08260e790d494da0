// Small things every view uses: making elements, and numbers the way the page writes them.
"use strict";
window.sakura = {};

(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  // Text always arrives as a text node, so markup typed by people is shown as it was typed.
  sakura.h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  sakura.s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // What the server answers; null where it cannot be reached, whether the question fails or comes back with nothing.
  sakura.asked = (answer) => answer.then((value) => value ?? null, () => null);
  sakura.UNREACHED = "The page's server does not answer; try it again.";

  sakura.calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  // Three significant digits without exponent: 0.871, 8.85, 11.8, 132.
  function digits(value) {
    const magnitude = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
    return value.toFixed(Math.min(Math.max(2 - magnitude, 0), 3));
  }

  sakura.time = (seconds) => (seconds >= 0.1 ? [digits(seconds), "s"] : [String(Math.round(seconds * 1000)), "ms"]);
  sakura.bytes = (bytes) => {
    if (bytes >= 1e6) return [digits(bytes / 1e6), "MB"];
    return bytes >= 1000 ? [digits(bytes / 1e3), "kB"] : [String(bytes), "bytes"];
  };
  sakura.times = (ratio) => [ratio < 10 ? ratio.toFixed(1) : digits(ratio), "times"];
  sakura.said = ([value, unit]) => `${value} ${unit}`;
  sakura.one = (value) => (value < 9.95 ? value.toFixed(1) : String(Math.round(value)));
})();
