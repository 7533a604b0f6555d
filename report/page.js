"use strict";
document.documentElement.classList.add("js");
document.querySelectorAll("table.sortable").forEach(table => {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") !== "descending";
      const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const numbers = [...body.rows].every(row => key(row) === "" || !isNaN(key(row)));
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === "" || y === "") return (x === "") - (y === "");
        return (numbers ? x - y : x.localeCompare(y)) * (falling ? -1 : 1);
      });
      [...table.tHead.rows[0].cells].forEach(cell => cell.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      body.append(...rows);
    });
  });
});
document.querySelectorAll(".zoomable").forEach(chart => {
  const pane = chart.querySelector(".pane"), svg = pane.querySelector("svg");
  const info = chart.querySelector(".info"), ticks = svg.querySelector(".ticks");
  const window_s = Number(svg.dataset.seconds), height = svg.height.baseVal.value;
  const hint = info.textContent;
  let zoom = 1;
  const time = s => s === 0 ? "0" : s < 1e-3 ? +(s * 1e6).toPrecision(4) + " µs"
    : s < 1 ? +(s * 1e3).toPrecision(4) + " ms" : +s.toPrecision(4) + " s";
  const axis = () => {
    const about = window_s / (svg.clientWidth / 110), power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= about);
    const marks = [];
    for (let i = 0; i * step < window_s * 0.98 && i < 4000; i++) {
      const x = i * step / window_s * 100 + "%";
      const last = zoom === 1 && i * step > window_s * 0.94;
      const line = document.createElementNS(svg.namespaceURI, "line");
      for (const [k, v] of [["x1", x], ["x2", x], ["y1", 0], ["y2", height - 16], ["class", "grid"]]) line.setAttribute(k, v);
      const text = document.createElementNS(svg.namespaceURI, "text");
      for (const [k, v] of [["x", x], ["y", height - 3], ["class", "mute"]]) text.setAttribute(k, v);
      text.textContent = last ? "" : time(i * step);
      marks.push(line, text);
    }
    ticks.replaceChildren(...marks);
  };
  const set = (value, at) => {
    const left = (pane.scrollLeft + at) / svg.clientWidth;
    zoom = Math.min(256, Math.max(1, value));
    svg.setAttribute("width", zoom * 100 + "%");
    pane.scrollLeft = left * svg.clientWidth - at;
    axis();
  };
  const middle = () => pane.clientWidth / 2;
  chart.querySelectorAll("[data-zoom]").forEach(button => button.addEventListener("click", () =>
    set(button.dataset.zoom === "0" ? 1 : zoom * button.dataset.zoom, middle())));
  pane.addEventListener("wheel", event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    set(zoom * (event.deltaY < 0 ? 1.25 : 0.8), event.clientX - pane.getBoundingClientRect().left);
  }, { passive: false });
  pane.addEventListener("keydown", event => {
    if (event.key === "+" || event.key === "=") set(zoom * 2, middle());
    else if (event.key === "-") set(zoom / 2, middle());
    else if (event.key === "0") set(1, 0);
    else return;
    event.preventDefault();
  });
  svg.addEventListener("mouseover", event => {
    const title = event.target.querySelector("title");
    info.textContent = title ? title.textContent : hint;
  });
  window.addEventListener("resize", axis);
  axis();
});
