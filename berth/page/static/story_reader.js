// Reads the story of the job that is shown: again when the job has changed, when an answer failed, and while the events
// lag behind the job.

import { WAITING } from "./cell.js";
import { isRefused } from "./live.js";

// Pauses before the next tries. After the last one a failed answer is asked for again and again, a late event is not.
const AGAIN_MS = [1000, 3000, 10_000, 30_000];
const NODES_EVERY_MS = 30_000; // which nodes could take a pod changes also while the job does not

export class StoryReader {
  // `came()` is called when there is something new to show.
  constructor(came) {
    this.came = came;
    this.run = 0;
    this.clear();
  }

  // Forgets the job; an answer that is still to come is dropped.
  clear() {
    this.run += 1;
    this.story = null; // as jobView takes it
    this.about = "";
    this.state = "";
    this.tries = 0;
    this.isReading = false;
    this.isDue = false;
    clearTimeout(this.timer);
  }

  // Reads what is not known yet of a job. `job` is undefined if the view has none with these names.
  see(source, [namespace, name], job) {
    const about = [namespace, name, job ? `uid ${job.uid}` : ""].join("/");
    if (about !== this.about) {
      this.clear();
      this.about = about;
    }
    const state = job ? stateOf(job, source) : "not in the view";
    if (this.isReading || (state === this.state && !this.isDue)) return;
    if (state !== this.state) this.tries = 0;
    clearTimeout(this.timer);
    this.isDue = false;
    this.state = state;
    if (job === undefined && source.isRecorded) this.story = {};
    else this.#read(source, namespace, name, job);
  }

  async #read(source, namespace, name, job) {
    const { run } = this;
    this.isReading = true;
    let story;
    try {
      // A job that is not in the view any more may still be known to the gateway.
      const known = job ?? await source.job(namespace, name);
      story = { ...(job ? {} : { job: known }), ...(await source.story(known)) };
      // Pods of others have no story.
      story.isLate = !known.is_foreign && (story.isLate || isBehind(known, story.events));
      story.isWhyFailed = !known.is_foreign && story.isWhyFailed;
    } catch (error) {
      story = error.status === 404 ? {} : { error: error.message, isRefused: isRefused(error) };
    }
    if (run !== this.run) return;
    this.isReading = false;
    this.story = story;
    if (!source.isRecorded) this.#planAgain(WAITING.has(job?.phase));
    this.came();
  }

  #planAgain(isWaiting) {
    const { error, isRefused, isWhyFailed, isLate } = this.story;
    const isFailed = error ? !isRefused : isWhyFailed;
    const againMs = AGAIN_MS[isFailed ? Math.min(this.tries, AGAIN_MS.length - 1) : this.tries];
    const isDue = againMs !== undefined && (isFailed || (!error && isLate));
    const pauseMs = isDue ? againMs : isWaiting && !error ? NODES_EVERY_MS : undefined;
    if (pauseMs === undefined) return;
    if (isDue) this.tries += 1;
    this.timer = setTimeout(() => {
      this.isDue = true;
      this.came();
    }, pauseMs);
  }
}

function stateOf(job, source) {
  const state = [job.n, job.phase, job.code, job.attempt, job.step, job.since_ms];
  return String(source.isRecorded ? [...state, source.index, source.applied] : state);
}

// Whether the event that made the job what it is is missing: the gateway may know the job before its event is stored.
function isBehind(job, events) {
  return !events.some((event) =>
    (event.phase === job.phase && (event.final || event.attempt === job.attempt)) ||
    (event.phase === "accepted" && job.phase === "waiting" && !job.code));
}
