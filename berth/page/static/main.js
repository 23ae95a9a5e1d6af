// The page: one cell, one map, and a panel with the view that the address names.

import { planOf } from "./actions.js";
import { Announcer } from "./announcer.js";
import { candidatesOf } from "./candidates.js";
import { Cell, OWNERS, WAITING, ownersOf } from "./cell.js";
import { copyCommand } from "./commands.js";
import { Confirmation } from "./confirmation.js";
import { readPalette } from "./colors.js";
import { Documents, isAlone, isLive } from "./documents.js";
import { byId, element, show, shown } from "./dom.js";
import { count, fullName, number } from "./format.js";
import { worstKind } from "./faults.js";
import { groupTitle } from "./groups.js";
import { showLegend } from "./legend.js";
import { LiveSource } from "./live.js";
import { CellMap } from "./map.js";
import { MapColors } from "./map_colors.js";
import { homeView } from "./home.js";
import { jobsView } from "./jobs.js";
import { deadView, servicesView } from "./operations.js";
import { Player } from "./player.js";
import { queuesView } from "./queues.js";
import { RecordedSource } from "./recorded.js";
import { addressOfGroup, addressOfJob, addressOfNode, isPlaced, parseAddress, setPlaced, setQuery } from "./routes.js";
import { SearchBox } from "./search.js";
import { jobView } from "./story.js";
import { StoryReader } from "./story_reader.js";
import { Theme } from "./theme.js";
import { faultsView, groupView, nodeView, queueView, unknownView } from "./views.js";

const PANEL_EVERY_MS = 200;
const READ_EVERY_MS = 5000;
const VIEWS = [["", "Cell"], ["queue", "Queue"], ["jobs", "Jobs"], ["queues", "Queues"], ["faults", "Faults"], ["services", "Services"], ["dead", "Dead letters"]];
const PARENT = { group: "", node: "", job: "jobs" };
const RENDER = {
  "": homeView, group: groupView, node: nodeView, queue: queueView, jobs: jobsView, faults: faultsView,
  job: jobView, queues: queuesView, services: servicesView, dead: deadView,
};

class Page {
  constructor() {
    this.cell = new Cell();
    this.limits = new Map();
    this.rights = null; // of the reader, once they are known
    this.links = []; // templates
    this.route = parseAddress(location.hash);
    this.reader = new StoryReader(() => this.#plan());
    this.documents = new Documents((view) => this.#documentArrived(view));
    this.announcer = new Announcer(byId("announcer"));
    this.theme = new Theme(byId("theme"), () => this.#themeChanged());
    this.map = new CellMap(byId("map"), this.cell, {
      opened: (row, group, slot) => this.#opened(row, group, slot),
      moved: () => this.#mapMoved(),
      hovered: (row, group, x, y) => this.#hovered(row, group, x, y),
      told: (row) => this.announcer.say(this.#nodeText(row)),
    });
    this.colors = new MapColors(byId("map-colors"), byId("map-namespaces"), this.map);
    this.search = new SearchBox(byId("search"), byId("found"), this.cell);
    showLegend(byId("legend-marks"), readPalette());
    this.confirmation = new Confirmation(
      ({ method, path, body }, reason) => this.source.send(method, path(reason), body?.(reason)), (plan) => {
        this.#say(plan.done);
        this.#read();
      });
    this.#listen();
    this.#listenFilters();
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
      taken: () => this.cell.view(),
      me: (rights, links) => {
        [this.rights, this.links] = [rights, links];
        this.#plan();
      },
    };
    const data = byId("recording");
    if (data === null) {
      this.source = new LiveSource(on);
      this.source.start();
    } else {
      const document = JSON.parse(data.textContent);
      const recordings = Array.isArray(document) ? document : [document];
      this.source = new RecordedSource(recordings, on);
      const { index, atMs } = timeOf(this.route.query);
      this.source.start(index, atMs);
      this.player = new Player(byId("player"), this.source);
      this.player.renew();
    }
    const isRecorded = this.source.isRecorded;
    this.views = VIEWS.filter(([view]) => !(isRecorded && isLive(view)));
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
    byId("sign-out").addEventListener("click", () => {
      this.#forget();
      this.source.signOut();
    });
    byId("sign-in-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = byId("token").value.trim();
      byId("token").value = "";
      byId("sign-in").close();
      this.#forget();
      this.source.signIn(token);
    });
    byId("content").addEventListener("click", (event) => {
      const { sort, clear } = event.target.closest("[data-sort], [data-clear]")?.dataset ?? {};
      if (sort) return this.#filter({ sort });
      if (clear) return this.#filter({ [clear]: null });
      const copied = event.target.closest("[data-copy]");
      if (copied) return copyCommand(copied).then((said) => this.#say(said));
      const action = event.target.closest("[data-action]");
      if (action) return this.#ask(action.dataset);
      const more = event.target.closest("[data-more]");
      if (!more) return;
      this.limits.set(more.dataset.more, (this.limits.get(more.dataset.more) ?? Number(more.dataset.first)) + 200);
      this.#render();
    });
  }

  #listenFilters() {
    byId("content").addEventListener("input", ({ target }) => {
      const { filter } = target.dataset;
      if (filter) this.#filter({ [filter]: target.value || null });
    });
  }

  // Asks whether what a button says is to be done.
  #ask(dataset) {
    const plan = planOf(dataset, {
      cell: this.cell, job: this.#job() ?? this.reader.story?.job, groups: this.map.arranged?.groups ?? [], faults: this.documents.of("faults").document,
    });
    if (plan) this.confirmation.ask(plan);
  }

  // What a button did, until another view is shown.
  #say(text) {
    byId("done").hidden = false;
    byId("done").textContent = shown(text);
  }

  // Another reader may see less: nothing of what the one before saw stays.
  #forget() {
    [this.rights, this.links] = [null, []];
    this.confirmation.close();
    byId("done").hidden = true;
    this.cell.clear();
    this.reader.clear();
    this.documents.clear();
    this.announcer.clear();
    this.map.highlight(0, -1);
    this.map.renewed();
    byId("cell-name").textContent = "";
    byId("partial").hidden = true;
    byId("map-tip").hidden = true;
    this.#showViews();
    this.#render();
  }

  #viewCame(view) {
    const isFirst = !this.cell.hasView;
    const focused = this.cell.nodeName(this.map.focus.row);
    this.cell.setView(view);
    this.map.focus.row = this.cell.rowOf.get(focused) ?? -1; // the rows are others
    this.map.renewed();
    byId("cell-name").textContent = shown(view.cell);
    byId("partial").hidden = !view.is_partial;
    byId("partial").textContent = "You see a part of this cell: jobs of namespaces that you may not read have no names here.";
    if (isFirst) {
      clearTimeout(this.mapTimer); // no reader moved the map before there was anything on it
      this.#read();
      requestAnimationFrame(() => {
        this.#focusMap();
        performance.mark("map"); // seen in the tools of the browser, and by python -m bench page
        this.#plan(); // the map comes first
      });
    } else this.#plan();
  }

  #changeCame(change) {
    if (change.layout) return this.#viewCame(change); // a whole view, because nodes came, left or moved
    const told = this.cell.apply(change);
    if (!this.source?.isRecorded) this.announcer.add(told);
    this.map.left(change.gone ?? []);
    this.map.redraw();
    this.#plan();
  }

  #timeMoved() {
    this.player?.update();
    this.#plan();
    clearTimeout(this.timeTimer);
    this.timeTimer = setTimeout(() => this.#writeTime(), 400);
  }

  #writeTime() {
    const { atMs, index } = this.source;
    setQuery({ t: String(Math.round(atMs)), timeline: index ? String(index) : null });
  }

  // Goes to the time of the address; an address without one, such as that of a link, gets the time that is shown.
  #takeTime({ query }) {
    const { source } = this;
    if (!query.has("t") && !query.has("timeline")) return this.#writeTime();
    const { index, atMs } = timeOf(query);
    const isSame = index === source.index;
    if (isSame && atMs === Math.round(source.atMs)) return;
    source.pause();
    if (isSame) return source.seek(atMs ?? source.recording.begin_ms);
    source.choose(index, atMs);
    this.player.renew();
  }

  #themeChanged() {
    this.map.setTheme();
    this.player?.paint();
    showLegend(byId("legend-marks"), readPalette());
    this.#render();
  }

  #showState(state, waitMs = 0) {
    const word = (text) => element("span", { class: "word" }, text); // not seen on a telephone
    const texts = {
      connecting: word("Connecting"), live: word("Live"), "signed out": "Not signed in", recording: word("Recording"),
      lost: [word("Connection "), `lost, retrying in ${Math.max(1, Math.round(waitMs / 1000))} s`],
    };
    const place = byId("connection");
    if (state === "connecting" && place.dataset.state === "lost") return; // one text until it is back
    place.dataset.state = state;
    show(place, texts[state]);
    byId("retry").hidden = state !== "lost" && state !== "signed out";
    byId("retry").textContent = state === "lost" ? "Retry now" : "Sign in";
    byId("sign-out").hidden = !this.source?.hasToken();
  }

  #askToken(reason) {
    byId("sign-in-reason").textContent = shown(reason);
    if (!byId("sign-in").open) byId("sign-in").showModal();
    byId("token").focus();
  }

  #routeChanged(isFirst) {
    if (location.hash && !location.hash.startsWith("#/")) return;
    const before = this.route;
    this.route = parseAddress(location.hash);
    const isOther = isFirst || !isSamePlace(before, this.route);
    if (this.source.isRecorded && !isFirst) this.#takeTime(this.route);
    const position = this.route.query.get("map");
    if (position === null && (isPlaced() || !this.route.view)) this.map.fit(false);
    else if (position === null) this.#mapMoved();
    else if (position !== this.map.position()) this.map.setPosition(position);
    if (!isOther) return this.#render();
    this.reader.clear();
    byId("done").hidden = true;
    byId("main").dataset.view = this.route.view; // some views are wider than others
    this.map.resize();
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
    if (!this.cell.hasView || query.has("map") || isPlaced()) return;
    if (job) this.map.goToRows(this.cell.rowsOf(job.n));
    else if (row >= 0) this.map.goToRows([row]);
    else if (view === "group") this.map.goToGroup(...names);
  }

  #showViews() {
    const current = PARENT[this.route.view] ?? this.route.view;
    const waiting = this.cell.queue.length;
    const amounts = { queue: waiting, faults: this.cell.faults.length };
    const kinds = { faults: worstKind(this.cell.faults) };
    const views = this.views.filter(([view]) => view !== "queues" || this.cell.hasQueues);
    show(byId("views"), views.map(([view, text]) =>
      element("li", {}, element("a", { href: `#/${view}`, "aria-current": view === current ? "page" : null }, text,
        amounts[view] ? [" ", element("span", { class: `amount ${kinds[view] ?? ""}` }, number(amounts[view]))] : null))));
    if (this.shownView !== current) byId("views").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.shownView = current;
  }

  #plan() {
    if (this.planned) return;
    const waitMs = Math.max(0, (this.renderedMs ?? 0) + PANEL_EVERY_MS - performance.now());
    this.planned = setTimeout(() => {
      this.planned = null;
      const { row } = this.map.focus;
      const job = this.#job();
      if (this.map.focus.job !== (job?.n ?? 0)) this.map.highlight(job?.n ?? 0, row);
      const hasPlaces = job !== undefined && this.cell.rowsByJob.has(job.n);
      if (hasPlaces && !this.hadPlaces) this.#focusMap(); // it was placed while it is shown
      this.hadPlaces = hasPlaces;
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
    const { isRecorded } = this.source;
    const render = (!(isRecorded && isLive(view)) && RENDER[view]) || unknownView;
    if (!this.cell.hasView && !isAlone(view)) {
      document.title = "Berth";
      byId("map").setAttribute("aria-label", "Map of the cell");
      show(byId("panel-title"), "Cell");
      show(byId("content"), element("p", { class: "empty" }, "Waiting for data."));
      return;
    }
    if (view === "job") this.reader.see(this.source, this.route.names, this.#job());
    this.#markCandidates();
    const { title, content } = render({
      cell: this.cell, groups: this.map.arranged?.groups ?? [], nowMs: this.source.nowMs(), isDark: this.theme.isDark,
      limits: this.limits, route: this.route, rights: this.rights, links: this.links, isRecorded, story: this.reader.story, notes: this.source.recording?.notes,
      ...(isRecorded && view === "" ? { document: this.source.hour() } : this.documents.of(view)),
    });
    document.title = shown(view ? `${title} - Berth` : `Berth ${this.cell.name}`);
    show(byId("panel-title"), title);
    show(byId("content"), content);
    this.#showFilters();
    this.colors.update(this.cell, this.theme.isDark);
    const total = this.cell.totals(this.cell.allRows());
    byId("map").setAttribute("aria-label", `Map of the cell: ${count(total.nodes, "node")}, ${total.used} of ${count(total.chips, "chip")} in use`);
  }

  // Marks the nodes that could take a pod of the job that is shown, if it waits.
  #markCandidates() {
    const job = this.#job();
    const fits = job && WAITING.has(job.phase) && !this.cell.rowsByJob.has(job.n) ? this.reader.story?.fits : undefined;
    const layout = this.cell.layoutCount;
    if (fits !== this.markedFits || layout !== this.markedLayout) {
      this.candidates = fits?.length ? candidatesOf(this.cell, fits) : null;
      [this.markedFits, this.markedLayout] = [fits, layout];
    }
    this.map.setCandidates(this.candidates?.rows ?? null);
  }

  // What a reader chose is in the address; a change of the list of choices does not change it.
  #showFilters() {
    for (const control of byId("content").querySelectorAll("[data-filter]")) {
      const wanted = this.route.query.get(control.dataset.filter) ?? "";
      if (control.value !== wanted) control.value = wanted;
    }
  }

  #filter(changes) {
    setQuery(changes);
    this.route = parseAddress(location.hash);
    this.#render();
  }

  #read() {
    this.documents.read(this.route.view, this.source, this.cell.hasView);
  }

  #documentArrived(view) {
    if (this.route.view === view) this.#render();
    else this.#read();
  }

  #opened(row, group, slot) {
    if (row >= 0) {
      const owner = slot === undefined || slot < 0 ? 0 : this.cell.nodes[row][OWNERS][slot];
      const job = owner > 0 ? this.cell.jobs.get(owner) : undefined;
      location.hash = job?.name ? addressOfJob(job) : addressOfNode(this.cell.nodeName(row));
    } else if (group) location.hash = addressOfGroup(group);
  }

  // The place becomes a part of the address. Without a view the address has the place that the map will have.
  #mapMoved() {
    clearTimeout(this.mapTimer);
    this.mapTimer = setTimeout(() => {
      // An address that was just set is not taken yet: the place belongs to the one before.
      if (!this.cell.hasView || !isSamePlace(this.route, parseAddress(location.hash))) return;
      setQuery({ map: this.map.position() || null });
      setPlaced();
    }, 300);
  }

  #nodeText(row) {
    const jobs = [...ownersOf(this.cell.nodes[row])].filter((owner) => owner > 0).map((n) => this.cell.jobs.get(n));
    const names = jobs.filter(Boolean).map((job) => (job.name ? fullName(job) : "a job that is not visible to you"));
    const condition = this.cell.condition[row];
    return `${this.cell.nodeName(row)}: ${this.cell.used[row]} of ${count(this.cell.chipsOf(row), "chip")} in use` +
      (condition ? `, ${condition}` : "") + (names.length ? `, ${names.slice(0, 3).join(", ")}${names.length > 3 ? " …" : ""}` : "") +
      this.#candidateText(row);
  }

  // Whether a node could take a pod of the job that is shown.
  #candidateText(row) {
    if (!this.candidates) return "";
    const why = this.candidates.why.get(row);
    if (why) return `; cannot take a pod of ${this.route.names[1]}: ${why}`;
    return this.candidates.rows.has(row) ? `; could take a pod of ${this.route.names[1]}` : "";
  }

  #hovered(row, group, x, y) {
    const tip = byId("map-tip");
    tip.hidden = row < 0 && group === null;
    if (tip.hidden) return;
    if (row >= 0) tip.textContent = shown(this.#nodeText(row));
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

// Whether two addresses show the same thing, whatever the place of the map.
function isSamePlace(one, other) {
  return one.view === other.view && one.names.join("/") === other.names.join("/");
}

// Time of a recording in an address: its timeline, and the moment; null for the beginning.
function timeOf(query) {
  return { index: Number(query.get("timeline")) || 0, atMs: query.has("t") ? Number(query.get("t")) || 0 : null };
}

new Page();
