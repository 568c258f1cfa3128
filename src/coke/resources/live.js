// Puts the parts of the page that have changed into their places, as the agent's server sends them.
"use strict";
const link = document.getElementById("link");
let over = false;

function say(text, lost) {
  if (link.textContent !== text) link.textContent = text;
  link.classList.toggle("lost", lost);
}

function put(parts) {
  for (const [id, inner] of Object.entries(parts)) {
    const place = document.getElementById(id);
    const open = [...place.querySelectorAll("details")].map((one) => one.open);
    place.innerHTML = inner;
    place.querySelectorAll("details").forEach((one, i) => { one.open = open[i] ?? false; });
    // What can be scrolled must be reached by keyboard, too.
    for (const wide of place.querySelectorAll(".wide")) {
      wide.tabIndex = 0;
      wide.setAttribute("role", "group");
      wide.setAttribute("aria-label", place.parentElement.querySelector("h2").textContent);
    }
  }
}

function connect() {
  const source = new EventSource("stream");
  source.addEventListener("open", () => {
    over = false;
    say("live", false);
  });
  source.addEventListener("parts", (event) => put(JSON.parse(event.data)));
  source.addEventListener("over", (event) => {
    over = true;
    say(event.data, false);
  });
  source.addEventListener("error", () => {
    const time = new Date().toLocaleTimeString();
    if (!over && !link.classList.contains("lost")) say(`no connection since ${time}: trying again`, true);
    // Browsers try again by themselves, but not after a refusal.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  });
}

connect();
