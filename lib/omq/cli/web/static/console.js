// The console's one script: live figures, new events, a few keys. Pages work without it. It writes
// texts only (textContent): nothing that it is sent is ever made into elements of its own.
"use strict";
(function () {
  const pill = document.getElementById("following");
  const source = document.body.dataset.follow;
  const root = document.documentElement.dataset.root;  // what a proxy has before our paths

  function tell(words, lost) {
    if (!pill) { return; }
    if (pill.textContent !== words) { pill.textContent = words; }
    pill.hidden = false;
    pill.classList.toggle("lost", lost);
  }

  const cells = new Map();
  document.querySelectorAll("[data-live]").forEach(function (each) {
    const known = cells.get(each.dataset.live) || [];
    known.push(each);
    cells.set(each.dataset.live, known);
  });

  function eventRow(found) {
    const row = document.createElement("tr");
    ["time", "level", "service", "number", "text", "fields"].forEach(function (key) {
      const cell = row.insertCell();
      if (key === "level") {
        const colours = { fatal: "bad", error: "bad", warning: "warn" };
        cell.append(element("span", found.level, "state " + (colours[found.level] || "plain")));
      } else {
        cell.textContent = String(found[key]);
        if (key === "time") { cell.className = "t"; }
        if (key === "fields") { cell.className = "foreign"; }
      }
    });
    return row;
  }

  // Alarms as the template draws them.
  function list(key, found) {
    const goal = document.querySelector("[data-list='" + key + "']");
    if (!goal) { return; }
    goal.replaceChildren(...found.map(function (each) {
      const row = document.createElement("li");
      row.append(element("span", each.severity, "state " + each.colour), " ");
      if (each.queue) {
        const link = element("a", each.queue);
        link.href = root + "/queues/" + encodeURIComponent(each.queue);
        row.append(link, " ");
      }
      row.append(element("span", each.text), " ");
      each.hints.forEach(function (hint) { row.append(element("code", hint), " "); });
      row.append(element("small", each.since));
      return row;
    }));
    goal.hidden = found.length === 0;
  }

  function element(name, text, kind) {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) { made.className = kind; }
    return made;
  }

  function take(message) {
    tell("live", false);
    const found = JSON.parse(message.data);
    if (found.events) {
      const body = document.getElementById("events");
      found.events.forEach(function (each) { body.prepend(eventRow(each)); });
      while (body.rows.length > 400) { body.lastElementChild.remove(); }
      return;
    }
    Object.entries(found).forEach(function ([key, text]) {
      if (key.endsWith(":colour")) {
        (cells.get(key.slice(0, -7)) || []).forEach(function (each) {
          each.className = (each.dataset.kind || "state") + " " + text;
        });
        return;
      }
      if (Array.isArray(text)) { list(key, text); return; }
      (cells.get(key) || []).forEach(function (each) {
        if (key.endsWith(":bar")) { each.setAttribute("width", text); return; }
        each.textContent = text;
        if (each.dataset.kind) { each.hidden = text === ""; }  // a note that says nothing
      });
    });
  }

  if (source && window.EventSource) {
    let stream = null;
    const open = function () {
      stream = new EventSource(source);
      stream.onopen = function () { tell("live", false); };
      stream.onmessage = take;
      stream.onerror = function () {
        tell("not connected: figures are old", true);
        if (stream.readyState !== EventSource.CLOSED) { return; }  // the browser tries again
        fetch(root + "/services", { redirect: "manual" }).then(function (found) {
          if (found.type !== "opaqueredirect") { throw new Error("busy"); }
          tell("logged out: load the page anew", true);
        }).catch(function () { window.setTimeout(open, 10000); });
      };
    };
    open();
    window.addEventListener("pagehide", function () { stream.close(); });
  }

  document.querySelectorAll("[data-all]").forEach(function (all) {
    all.addEventListener("change", function () {
      document.querySelectorAll("input[name=" + all.dataset.all + "]").forEach(function (each) {
        each.checked = all.checked;
      });
    });
  });

  // Keys: / to the search field, then as in other consoles g and the first letter of a page.
  const pages = { o: "/", q: "/queues", s: "/services", r: "/readers", p: "/peers", u: "/units",
                  e: "/events", a: "/audit", c: "/connections", d: "/definitions", i: "/rights" };
  let going = false;
  document.addEventListener("keydown", function (pressed) {
    if (pressed.ctrlKey || pressed.altKey || pressed.metaKey ||
        /^(input|textarea|select)$/i.test(pressed.target.tagName)) { return; }
    if (pressed.key === "/") {
      const field = document.querySelector("[data-key='/']");
      if (field) { field.focus(); pressed.preventDefault(); }
    } else if (going && pages[pressed.key]) {
      window.location.assign(root + pages[pressed.key]);
    }
    going = pressed.key === "g";
  });
})();
