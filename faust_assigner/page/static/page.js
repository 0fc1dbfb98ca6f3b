"use strict";
(() => {
  const story = document.getElementById("story"), tip = document.getElementById("tip");
  const shown = new Map();
  const ANSWER_MS = 20000;
  let heardAt = Date.now(), opened = null, returnTo = null, busy = false, again = false, etag = null;

  // -- looks

  function listen() {
    const events = new EventSource("events");
    events.addEventListener("look", refresh);
    events.addEventListener("beat", () => { heardAt = Date.now(); age(); });
    // A worker whose event loop stands still keeps the connection and says nothing: try another one. After an
    // answer with an error, such as 503, the browser does not try again by itself.
    const watch = setInterval(() => {
      age();
      if (Date.now() - heardAt > 15000) {
        clearInterval(watch); events.close(); heardAt = Date.now() - 8000; setTimeout(listen, 1000);
      }
    }, 1000);
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await get("parts", etag ? { "If-None-Match": etag } : {});
      if (answer.status === 200) {
        etag = answer.headers.get("ETag");
        const found = await answer.json();
        await release;
        document.title = found.title;
        for (const [name, html] of Object.entries(found.parts)) put(name, html);
        if (opened) await open(opened, false);
      }
      if (answer.ok || answer.status === 304) heardAt = Date.now();
    } catch { /* the indicator says how old the page is */ }
    busy = false;
    age();
    if (again) { again = false; refresh(); }
  }

  // Without a limit, an answer that never comes would block all later updates.
  function get(url, headers = {}) { return fetch(url, { headers, signal: AbortSignal.timeout(ANSWER_MS) }); }

  // A link that is replaced while the pointer presses it gets no click: updates wait for the release, at most 2 s.
  let release = null, released = () => {};
  document.addEventListener("pointerdown", () => {
    release = new Promise(resolve => { released = resolve; setTimeout(resolve, 2000); });
  });
  for (const name of ["click", "pointercancel"]) addEventListener(name, () => released());

  function put(name, html) {
    const part = document.getElementById(name);
    if (!part || shown.get(name) === html) return;
    shown.set(name, html);
    const boxes = () => [...part.querySelectorAll(".box, .wide")];
    const at = boxes().map(one => [one.scrollLeft, one.scrollTop]);
    const focused = part.contains(document.activeElement) ? place(document.activeElement) : null;
    const isOpen = [...part.querySelectorAll("details[open]")].map(one => one.dataset.keep);
    const find = document.getElementById("find"), text = find && find.value;
    const trouble = document.getElementById("trouble"), only = trouble && trouble.checked;
    part.innerHTML = html;
    newest(part);
    boxes().forEach((one, i) => { if (at[i]) [one.scrollLeft, one.scrollTop] = at[i]; });
    for (const one of part.querySelectorAll("details")) one.open = isOpen.includes(one.dataset.keep);
    if (name === "grid") {
      prepare();
      if (find && document.getElementById("find")) {
        document.getElementById("find").value = text;
        document.getElementById("trouble").checked = only;
        filter();
      }
    }
    if (focused) { const one = found(part, focused); if (one) one.focus({ preventScroll: true }); }
  }

  // A chart that is wider than the screen begins at its newest end.
  function newest(part) {
    for (const { parentElement: box } of part.querySelectorAll(".wide > .chart")) box.scrollLeft = box.scrollWidth;
  }

  function place(element) {
    const row = element.closest("tr");
    return { id: element.id, href: element.getAttribute("href"), row: row && row.dataset.name,
             box: element.classList.contains("box") };
  }

  function found(part, at) {
    if (at.id) return document.getElementById(at.id);
    if (at.box) return part.querySelector(".box");
    if (!at.href) return null;
    return links(part).find(a => a.getAttribute("href") === at.href && a.closest("tr").dataset.name === at.row);
  }

  function age() {
    const live = document.getElementById("live");
    if (!live) return;
    const seconds = Math.round((Date.now() - heardAt) / 1000), stale = seconds > 6, old = "old" in live.dataset;
    live.classList.toggle("is-live", !stale && !old);
    live.classList.toggle("is-stale", stale || old);
    const text = live.querySelector(".text");
    if (!live.dataset.said) live.dataset.said = text.textContent;
    text.textContent = stale ? `no news for ${seconds} s; ${live.dataset.said}` : `${old ? "seen last" : "live"}, ${live.dataset.said}`;
  }

  // -- the grid

  function links(root) { return [...root.querySelectorAll(".grid tbody tr:not([hidden]) a")]; }

  function prepare() {
    for (const one of document.querySelectorAll(".find")) one.hidden = false;
    const all = document.querySelectorAll(".grid tbody a");
    all.forEach((a, at) => a.setAttribute("tabindex", at ? "-1" : "0"));
    choose();
  }

  function choose() {
    for (const a of document.querySelectorAll(".grid a.chosen")) a.classList.remove("chosen");
    if (!opened) return;
    for (const a of document.querySelectorAll(".grid tbody a"))
      if (key(a) === opened) a.classList.add("chosen");
  }

  function key(a) { return new URLSearchParams(a.getAttribute("href").slice(6)).get("t"); }

  function filter() {
    const find = document.getElementById("find"), trouble = document.getElementById("trouble");
    const wanted = find.value.trim().toLowerCase();
    let count = 0;
    for (const row of document.querySelectorAll(".grid tbody tr")) {
      const has = row.dataset.name.toLowerCase().includes(wanted) ||
        (wanted.length > 1 && [...row.querySelectorAll("a")].some(a => key(a).toLowerCase().startsWith(wanted)));
      const fits = has && !(trouble.checked && row.classList.contains("good"));
      row.hidden = !fits;
      count += fits;
    }
    document.getElementById("none-found").hidden = count > 0;
  }

  function x(a) { return Number(a.firstElementChild.getAttribute("x")); }

  function step(a, name) {
    const row = a.closest("tr"), own = [...row.querySelectorAll("a")].sort((p, q) => x(p) - x(q)), at = own.indexOf(a);
    if (name === "ArrowRight") return own[at + 1];
    if (name === "ArrowLeft") return own[at - 1];
    if (name === "Home") return own[0];
    if (name === "End") return own[own.length - 1];
    let next = row;
    do next = name === "ArrowDown" ? next.nextElementSibling : next.previousElementSibling;
    while (next && (next.hidden || !next.querySelector("a")));
    if (!next) return null;
    return [...next.querySelectorAll("a")].reduce((p, q) => Math.abs(x(q) - x(a)) < Math.abs(x(p) - x(a)) ? q : p);
  }

  function move(a) {
    for (const one of document.querySelectorAll('.grid a[tabindex="0"]')) one.setAttribute("tabindex", "-1");
    a.setAttribute("tabindex", "0");
    a.focus({ preventScroll: true });
    const box = a.closest(".box"), mark = a.getBoundingClientRect(), frame = box.getBoundingClientRect();
    const left = frame.left + box.querySelector("tbody .who").offsetWidth, top = frame.top + box.querySelector("thead").offsetHeight;
    if (mark.left < left + 4) box.scrollLeft -= left + 24 - mark.left;
    if (mark.right > frame.right - 16) box.scrollLeft += mark.right - frame.right + 40;
    if (mark.top < top + 4) box.scrollTop -= top + 24 - mark.top;
    if (mark.bottom > frame.bottom - 16) box.scrollTop += mark.bottom - frame.bottom + 40;
    const row = a.closest("tr").dataset.name;
    if (mark.top < 0 || mark.bottom > innerHeight) a.closest("tr").scrollIntoView({ block: "nearest" });
    say(`${row}, ${a.getAttribute("aria-label")}`, a.getBoundingClientRect());
  }

  function say(text, at) {
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${at.top > 50 ? at.top - tip.offsetHeight - 8 : at.bottom + 8}px`;
  }

  function mark(event) { const a = event.target.closest && event.target.closest(".grid tbody a"); return a; }

  document.addEventListener("mouseover", event => {
    const a = mark(event);
    if (a) say(`${a.closest("tr").dataset.name}, ${a.getAttribute("aria-label")}`, a.getBoundingClientRect());
    else tip.hidden = true;
  });
  document.addEventListener("focusout", () => { tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
  document.addEventListener("input", event => {
    if (event.target.id === "find" || event.target.id === "trouble") filter();
  });

  document.addEventListener("keydown", event => {
    if (event.key === "Escape" && opened) { close(); return; }
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (!/^(Arrow|Home$|End$)/.test(event.key)) return;
    let a = mark(event);
    if (!a && event.target.classList.contains("box")) {
      a = event.target.querySelector('.grid tbody a[tabindex="0"]');
      if (a) { event.preventDefault(); move(a); }
      return;
    }
    if (!a) return;
    event.preventDefault();
    const next = step(a, event.key);
    if (next) move(next);
  });

  // -- a task's story

  document.addEventListener("click", event => {
    if (event.target.closest("[data-close]")) { close(); return; }
    const a = event.target.closest('a[href^="story?"]');
    if (!a || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    returnTo = place(a);
    location.hash = `story=${encodeURIComponent(key(a))}`;
  });

  async function open(wanted, focus) {
    const answer = await get(`story?part=1&t=${encodeURIComponent(wanted)}`);
    const html = answer.ok ? await answer.text() : null;
    await release;
    if (opened !== wanted) return;
    if (answer.ok) {
      if (shown.get("story") !== html || story.hidden) {
        const at = story.scrollTop;
        story.innerHTML = html;
        shown.set("story", html);
        story.scrollTop = at;
      }
    } else {
      story.innerHTML = '<header><h2>No such task now</h2><button type="button" class="close" aria-label="Close the story" data-close>×</button></header>';
    }
    story.hidden = false;
    choose();
    if (focus) { story.scrollTop = 0; story.focus(); }
  }

  function close() {
    opened = null;
    story.hidden = true;
    choose();
    history.replaceState(null, "", location.pathname + location.search);
    const a = returnTo && found(document.getElementById("grid"), returnTo);
    if (a) a.focus({ preventScroll: true });
  }

  function fromHash() {
    const said = new URLSearchParams(location.hash.slice(1)).get("story");
    if (said === opened) return;
    opened = said;
    if (said) open(said, true).catch(() => {}); else close();  // after an error the next update opens it
  }

  addEventListener("hashchange", fromHash);
  prepare();
  newest(document);
  fromHash();
  listen();
})();
