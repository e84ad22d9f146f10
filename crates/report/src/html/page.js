// The parts of the page: tabs where there are many, all of them on paper; each with its heat maps.
(() => {
  // Maps come up when their part of the page is first shown: a thousand CPUs cost nothing before.
  const waiting = new Set(document.querySelectorAll(".map"));
  const redraws = [];
  const drawIn = (part) => {
    for (const host of [...waiting].filter((host) => part.contains(host))) {
      waiting.delete(host);
      redraws.push([part, heatMap(host)]);
    }
  };
  const isShown = (part) => !part.hasAttribute("hidden");
  // What is wider than its box shows it, and can be moved by the keyboard.
  const reach = () => document.querySelectorAll(".scroll").forEach((box) => {
    box.tabIndex = box.classList.toggle("more", box.scrollWidth > box.clientWidth) ? 0 : -1;
  });
  const redraw = () => { redraws.forEach(([part, one]) => isShown(part) && one()); reach(); };
  document.addEventListener("toggle", reach, true);

  // With several devices the parts of the page become tabs that the address's # chooses; otherwise they form one column.
  const parts = [...document.querySelectorAll(".page")];
  const links = [...document.querySelectorAll("nav a")];
  let whole = parts.filter((part) => part.classList.contains("device")).length < 2;
  const partOf = (element) => element && parts.find((part) => part.contains(element));
  const aim = () => {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch { /* not an anchor of this page */ }
    return document.getElementById(name);
  };
  const show = (target) => {
    const chosen = partOf(target) || parts[0];
    for (const part of parts) {
      const shown = whole || part === chosen;
      if (shown) part.removeAttribute("hidden");
      else part.setAttribute("hidden", "until-found");
    }
    for (const link of links)
      if (!whole && link.hash.slice(1) === chosen.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    parts.filter(isShown).forEach(drawIn);
    redraw();
    // A tab begins with the page's head, so that the other tabs stay in sight.
    if (target && target === chosen && !whole) window.scrollTo(0, 0);
    else if (target) target.scrollIntoView();
  };
  for (const part of parts) part.addEventListener("beforematch", () => { drawIn(part); });
  if (!whole) {
    const [toggle, item] = ["button", "li"].map((tag) => document.createElement(tag));
    [toggle.type, toggle.textContent] = ["button", "All on one page"];
    item.append(toggle);
    document.querySelector("nav ul").append(item);
    toggle.addEventListener("click", () => {
      whole = !whole;
      toggle.textContent = whole ? "As tabs" : "All on one page";
      show(aim());
    });
  }
  window.addEventListener("hashchange", () => show(aim()));
  show(aim());
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 100); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper has all parts, in light colours.
  window.matchMedia("print").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => {
    for (const part of parts) part.removeAttribute("hidden");
    parts.forEach(drawIn);
    redraw();
  });
  window.addEventListener("afterprint", () => show(null));
})();
