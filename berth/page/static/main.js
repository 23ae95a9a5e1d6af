// The page: one cell, one map, and a panel with the view that the address names.

import { Announcer } from "./announcer.js";
import { Cell, OWNERS, ownersOf } from "./cell.js";
import { readPalette } from "./colors.js";
import { byId, element, show } from "./dom.js";
import { count, fullName } from "./format.js";
import { groupTitle } from "./groups.js";
import { showLegend } from "./legend.js";
import { LiveSource } from "./live.js";
import { CellMap } from "./map.js";
import { deadView, servicesView } from "./operations.js";
import { Player } from "./player.js";
import { RecordedSource } from "./recorded.js";
import { addressOfGroup, addressOfJob, addressOfNode, parseAddress, setQuery } from "./routes.js";
import { SearchBox } from "./search.js";
import { jobView } from "./story.js";
import { Theme } from "./theme.js";
import { cellView, faultsView, groupView, jobsView, nodeView, queueView, unknownView } from "./views.js";

const PANEL_EVERY_MS = 200;
const READ_EVERY_MS = 5000;
const VIEWS = [["", "Cell"], ["queue", "Queue"], ["jobs", "Jobs"], ["faults", "Faults"], ["services", "Services"], ["dead", "Dead letters"]];
const PARENT = { group: "", node: "", job: "jobs" };
const RENDER = {
  "": cellView, group: groupView, node: nodeView, queue: queueView, jobs: jobsView, faults: faultsView,
  job: jobView, services: servicesView, dead: deadView,
};
const READ = { services: "cell", dead: "dead" }; // views with a document of their own, read again and again

class Page {
  constructor() {
    this.cell = new Cell();
    this.limits = new Map();
    this.route = parseAddress(location.hash);
    this.story = null;
    this.storyOf = "";
    this.documents = {};
    this.errors = {};
    this.announcer = new Announcer(byId("announcer"));
    this.theme = new Theme(byId("theme"), () => this.#themeChanged());
    this.map = new CellMap(byId("map"), this.cell, {
      opened: (row, group, slot) => this.#opened(row, group, slot),
      moved: () => this.#mapMoved(),
      hovered: (row, group, x, y) => this.#hovered(row, group, x, y),
      told: (row) => this.announcer.say(this.#nodeText(row)),
    });
    this.search = new SearchBox(byId("search"), byId("found"), this.cell);
    showLegend(byId("legend-marks"), readPalette());
    this.#listen();
    this.#startSource();
    this.#routeChanged(true);
    setInterval(() => this.#tick(), 1000);
  }

  #startSource() {
    const on = {
      view: (view) => this.#viewCame(view),
      change: (change) => this.#changeCame(change),
      state: (state, waitMs) => this.#showState(state, waitMs),
      signIn: (reason) => this.#askToken(reason),
      moved: () => this.#timeMoved(),
    };
    const data = byId("recording");
    if (data === null) {
      this.source = new LiveSource(on);
      this.source.start();
    } else {
      const document = JSON.parse(data.textContent);
      const recordings = Array.isArray(document) ? document : [document];
      this.source = new RecordedSource(recordings, on);
      const { query } = this.route;
      this.source.start(Number(query.get("timeline") ?? 0) || 0, query.has("t") ? Number(query.get("t")) || 0 : null);
      this.player = new Player(byId("player"), this.source);
      this.player.renew();
    }
    const isRecorded = this.source.isRecorded;
    this.views = VIEWS.filter(([view]) => !(isRecorded && view in READ));
  }

  #listen() {
    window.addEventListener("hashchange", () => this.#routeChanged(false));
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();
      byId("panel-title").focus();
    });
    byId("zoom-in").addEventListener("click", () => this.map.zoom(1.5));
    byId("zoom-out").addEventListener("click", () => this.map.zoom(1 / 1.5));
    byId("zoom-fit").addEventListener("click", () => this.map.fit());
    byId("retry").addEventListener("click", () => this.source.retry());
    byId("sign-out").addEventListener("click", () => this.source.signOut());
    byId("sign-in-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = byId("token").value.trim();
      byId("token").value = "";
      byId("sign-in").close();
      this.source.signIn(token);
    });
    byId("content").addEventListener("click", (event) => {
      const more = event.target.closest("[data-more]");
      if (!more) return;
      this.limits.set(more.dataset.more, (this.limits.get(more.dataset.more) ?? 100) + 200);
      this.#render();
    });
  }

  #viewCame(view) {
    const isFirst = !this.cell.hasView;
    this.cell.setView(view);
    this.map.renewed();
    byId("cell-name").textContent = view.cell;
    byId("partial").hidden = !view.is_partial;
    byId("partial").textContent = "You see a part of this cell: jobs of namespaces that you may not read have no names here.";
    if (isFirst) {
      requestAnimationFrame(() => {
        this.#focusMap();
        performance.mark("map"); // seen in the tools of the browser, and by python -m bench page
      });
    }
    this.#plan();
  }

  #changeCame(change) {
    if (change.layout) return this.#viewCame(change); // a whole view, because nodes came, left or moved
    const told = this.cell.apply(change);
    if (!this.source?.isRecorded) this.announcer.add(told);
    this.map.redraw();
    this.#plan();
  }

  #timeMoved() {
    this.player?.update();
    this.#plan();
    clearTimeout(this.timeTimer);
    this.timeTimer = setTimeout(() => {
      const { atMs, recording } = this.source;
      setQuery({ t: atMs > recording.begin_ms ? String(Math.round(atMs)) : null, timeline: this.source.index ? String(this.source.index) : null });
    }, 400);
  }

  #themeChanged() {
    this.map.setTheme();
    this.player?.paint();
    showLegend(byId("legend-marks"), readPalette());
    this.#render();
  }

  #showState(state, waitMs = 0) {
    const texts = {
      connecting: "Connecting", live: "Live", "signed out": "Not signed in", recording: "Recording",
      lost: `Connection lost, retrying in ${Math.max(1, Math.round(waitMs / 1000))} s`,
    };
    const place = byId("connection");
    if (state === "connecting" && place.dataset.state === "lost") return; // one text until it is back
    place.dataset.state = state;
    place.textContent = texts[state];
    byId("retry").hidden = state !== "lost" && state !== "signed out";
    byId("retry").textContent = state === "lost" ? "Retry now" : "Sign in";
    byId("sign-out").hidden = !this.source?.hasToken();
  }

  #askToken(reason) {
    byId("sign-in-reason").textContent = reason;
    if (!byId("sign-in").open) byId("sign-in").showModal();
    byId("token").focus();
  }

  #routeChanged(isFirst) {
    if (location.hash && !location.hash.startsWith("#/")) return;
    const before = this.route;
    this.route = parseAddress(location.hash);
    const isOther = isFirst || before.view !== this.route.view || before.names.join("/") !== this.route.names.join("/");
    const position = this.route.query.get("map");
    if (position && (isFirst || !isOther)) this.map.setPosition(position);
    if (!isOther) return;
    this.story = null;
    this.storyOf = "";
    this.#focusMap();
    this.#showViews();
    this.#render();
    this.#read();
    if (isFirst) return;
    byId("panel").scrollTop = 0;
    // On a narrow screen the view is below the map.
    if (matchMedia("(max-width: 800px)").matches) byId("panel").scrollIntoView({ block: "start" });
    if (this.route.view) byId("panel-title").focus({ preventScroll: true });
  }

  #job() {
    return this.route.view === "job" ? this.cell.jobNamed(...this.route.names) : undefined;
  }

  // Shows on the map what the address names.
  #focusMap() {
    const { view, names, query } = this.route;
    const job = this.#job();
    const row = view === "node" ? (this.cell.rowOf.get(names[0]) ?? -1) : -1;
    this.map.highlight(job?.n ?? 0, row);
    if (!this.cell.hasView || query.has("map")) return;
    if (job) this.map.goToRows(this.cell.rowsOf(job.n));
    else if (row >= 0) this.map.goToRows([row]);
    else if (view === "group") this.map.goToGroup(...names);
  }

  #showViews() {
    const current = PARENT[this.route.view] ?? this.route.view;
    const waiting = this.cell.queue.length;
    const amounts = { queue: waiting, faults: this.cell.faults.length };
    show(byId("views"), this.views.map(([view, text]) =>
      element("li", {}, element("a", { href: `#/${view}`, "aria-current": view === current ? "page" : null }, text,
        amounts[view] ? element("span", { class: "amount" }, ` ${amounts[view]}`) : null))));
  }

  #plan() {
    if (this.planned) return;
    const waitMs = Math.max(0, (this.renderedMs ?? 0) + PANEL_EVERY_MS - performance.now());
    this.planned = setTimeout(() => {
      this.planned = null;
      const { row } = this.map.focus;
      const job = this.#job();
      if (this.map.focus.job !== (job?.n ?? 0)) this.map.highlight(job?.n ?? 0, row);
      this.#showViews();
      this.#render();
    }, waitMs);
  }

  #tick() {
    const isHidden = document.visibilityState === "hidden";
    if (isHidden || this.source.isRecorded) return;
    this.ticks = (this.ticks ?? 0) + 1;
    this.#plan();
    if ((this.ticks * 1000) % READ_EVERY_MS === 0) this.#read();
  }

  #render() {
    this.renderedMs = performance.now();
    const { view } = this.route;
    const render = RENDER[view] ?? unknownView;
    if (!this.cell.hasView && !(view in READ)) {
      show(byId("panel-title"), "Cell");
      show(byId("content"), element("p", { class: "empty" }, "Waiting for data."));
      return;
    }
    if (view === "job") this.#readStory();
    const { title, content } = render({
      cell: this.cell, groups: this.map.arranged?.groups ?? [], nowMs: this.source.nowMs(), isDark: this.theme.isDark,
      limits: this.limits, route: this.route, story: this.story, notes: this.source.recording?.notes,
      document: this.documents[view], error: this.errors[view],
    });
    document.title = view ? `${title} - Berth` : `Berth ${this.cell.name}`;
    show(byId("panel-title"), title);
    show(byId("content"), content);
    const total = this.cell.totals(this.cell.allRows());
    byId("map").setAttribute("aria-label", `Map of the cell: ${count(total.nodes, "node")}, ${total.used} of ${count(total.chips, "chip")} in use`);
  }

  // Reads the document of a view that has one.
  async #read() {
    const { view } = this.route;
    const path = READ[view];
    if (!path || this.source.isRecorded || this.isReading) return;
    this.isReading = true;
    try {
      this.documents[view] = await this.source.get(path);
      this.errors[view] = "";
    } catch (error) {
      this.errors[view] = error.message;
    } finally {
      this.isReading = false;
    }
    if (this.route.view === view) this.#render();
    else this.#read();
  }

  // Reads the story of the job again when the job has changed.
  async #readStory() {
    const job = this.#job();
    if (job === undefined) return this.#readFormerJob();
    const state = [job.n, job.uid, job.phase, job.code, job.attempt, job.step, job.since_ms, this.cell.version === 0];
    const wanted = this.source.isRecorded ? `${state} ${this.source.index} ${this.source.applied}` : String(state);
    if (wanted === this.storyOf || this.isReadingStory) return;
    this.isReadingStory = true;
    this.storyOf = wanted;
    try {
      this.story = await this.source.story(job);
    } catch (error) {
      this.story = { error: error.message };
    } finally {
      this.isReadingStory = false;
    }
    this.#plan();
  }

  // A job that is not in the view any more may still be known to the gateway.
  async #readFormerJob() {
    const [namespace, name] = this.route.names;
    const wanted = `former ${namespace}/${name}`;
    if (this.storyOf === wanted || this.isReadingStory || !this.cell.hasView) return;
    this.storyOf = wanted;
    if (this.source.isRecorded) {
      this.story = {};
      return;
    }
    this.isReadingStory = true;
    try {
      const job = await this.source.job(namespace, name);
      this.story = { job, ...(await this.source.story(job)) };
    } catch {
      this.story = {};
    } finally {
      this.isReadingStory = false;
    }
    this.#plan();
  }

  #opened(row, group, slot) {
    if (row >= 0) {
      const owner = slot === undefined || slot < 0 ? 0 : this.cell.nodes[row][OWNERS][slot];
      const job = owner > 0 ? this.cell.jobs.get(owner) : undefined;
      location.hash = job?.name ? addressOfJob(job) : addressOfNode(this.cell.nodeName(row));
    } else if (group) location.hash = addressOfGroup(group);
  }

  #mapMoved() {
    clearTimeout(this.mapTimer);
    this.mapTimer = setTimeout(() => setQuery({ map: this.map.position() || null }), 300);
  }

  #nodeText(row) {
    const jobs = [...ownersOf(this.cell.nodes[row])].filter((owner) => owner > 0).map((n) => this.cell.jobs.get(n));
    const names = jobs.filter(Boolean).map((job) => (job.name ? fullName(job) : "a job that is not visible to you"));
    const condition = this.cell.condition[row];
    return `${this.cell.nodeName(row)}: ${this.cell.used[row]} of ${count(this.cell.chipsOf(row), "chip")} in use` +
      (condition ? `, ${condition}` : "") + (names.length ? `, ${names.slice(0, 3).join(", ")}${names.length > 3 ? " …" : ""}` : "");
  }

  #hovered(row, group, x, y) {
    const tip = byId("map-tip");
    tip.hidden = row < 0 && group === null;
    if (tip.hidden) return;
    if (row >= 0) tip.textContent = this.#nodeText(row);
    else {
      const sum = this.cell.totals(group.rows);
      tip.textContent = `${groupTitle(group)}: ${count(sum.nodes, "node")}, ${sum.used} of ${count(sum.chips, "chip")} in use`;
    }
    const left = Math.min(x + 14, this.map.width - tip.offsetWidth - 6);
    const top = y + 18 + tip.offsetHeight > this.map.height ? y - tip.offsetHeight - 8 : y + 18;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${top}px`;
  }
}

new Page();
