// What a page of fedassay can do beyond being read: the threshold explorer, light and dark, printing in full.
// Texts and numbers come from the page itself; nothing is computed, sent or stored.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  // --- the threshold explorer ---------------------------------------------------------------------------------------

  function explore(root) {
    const data = JSON.parse(document.getElementById(root.dataset.explorer).textContent);
    const slider = root.querySelector("input[type=range]");
    const markers = markersOf(root.closest(".task"));
    const show = () => {
      const at = Number(slider.value);
      for (const name of ["at", "sentence"]) {
        root.querySelector(`[data-shown=${name}]`).textContent = data[name][at];
      }
      slider.setAttribute("aria-valuetext", data.at[at]);
      for (const tile of root.querySelectorAll("[data-metric]")) {
        showMetric(tile, data.metrics[tile.dataset.metric], at);
      }
      for (const move of markers) move(data, at);
    };
    slider.addEventListener("input", show);
    root.querySelector(".live").hidden = false;
    root.querySelector("details").open = false;
    show();
  }

  function showMetric(tile, metric, at) {
    tile.querySelector("dd b").textContent = metric.text[at];
    tile.querySelector("dd small").textContent = metric.interval[at];
    for (const end of ["value", "lower", "upper"]) tile.dataset[end] = String(metric[end][at]);
  }

  // Where the chosen threshold is in the plots of the same task: each has axes from 0 to 1 where it is marked.
  const places = {
    "roc": (m, at) => [1 - m.specificity.value[at], m.recall.value[at], m.specificity.value[at]],
    "precision-recall": (m, at) => [m.recall.value[at], m.precision.value[at], m.recall.value[at]],
  };

  function markersOf(task) {
    return [...task.querySelectorAll("[data-marks]")].map((figure) => {
      const frame = figure.querySelector("svg .background");
      if (!frame) return () => {};
      const box = frame.getBBox();
      return figure.dataset.marks === "threshold" ? line(frame, box) : dot(frame, box, places[figure.dataset.marks]);
    });
  }

  function added(frame, kind, attributes) {
    const mark = document.createElementNS(SVG, kind);
    mark.setAttribute("class", "marker");
    for (const [name, value] of Object.entries(attributes)) mark.setAttribute(name, value);
    frame.parentNode.appendChild(mark);
    return mark;
  }

  function dot(frame, box, place) {
    const mark = added(frame, "circle", { r: 6 });
    return (data, at) => {
      const [x, y, known] = place(data.metrics, at);
      const shown = known !== null && y !== null;
      mark.style.display = shown ? "" : "none";
      if (!shown) return;
      mark.setAttribute("cx", box.x + x * box.width);
      mark.setAttribute("cy", box.y + (1 - y) * box.height);
    };
  }

  function line(frame, box) {
    const mark = added(frame, "line", { y1: box.y, y2: box.y + box.height });
    return (data, at) => {
      for (const end of ["x1", "x2"]) mark.setAttribute(end, box.x + data.applied[at] * box.width);
    };
  }

  // --- light and dark -----------------------------------------------------------------------------------------------

  function themed(button) {
    const root = document.documentElement;
    const dark = () =>
      root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const name = () => { button.textContent = dark() ? "Light colours" : "Dark colours"; };
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      name();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    button.hidden = false;
    name();
  }

  // --- what is wider than the page can be scrolled with the keyboard --------------------------------------------------

  const watcher = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth + 1) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const target of document.querySelectorAll(".scrolls")) watcher.observe(target);

  // --- paper shows everything ---------------------------------------------------------------------------------------

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });

  for (const button of document.querySelectorAll("[data-theme-button]")) themed(button);
  for (const root of document.querySelectorAll("[data-explorer]")) explore(root);
})();
