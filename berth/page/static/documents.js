// Documents of views beside the picture of the cell: read from the gateway, again and again while the view is shown.

const drains = (source) => source.list("drains", "drains");
const READ = {
  "": (source) => source.hour(), queues: (source) => source.list("queues", "queues"),
  node: drains, group: drains, faults: (source) => source.get("faults?limit=1"), // the first page has what is held back
  services: (source) => source.get("cell"), dead: (source) => source.get("dead"),
};
const ALONE = new Set(["services", "dead"]); // shown without a picture of the cell
const LIVE = new Set(["queues", ...ALONE]);

// Whether a view is shown without a picture.
export const isAlone = (view) => ALONE.has(view);

// Whether a view has nothing without a document of a living cell.
export const isLive = (view) => LIVE.has(view);

export class Documents {
  // `arrived(view)` is called after a document was read, or could not be.
  constructor(arrived) {
    this.arrived = arrived;
    this.clear();
  }

  // Another reader may see less.
  clear() {
    this.reading = { documents: {}, errors: {}, isBusy: false };
  }

  // Document of a view, and why it could not be read again; both may be absent.
  of(view) {
    return { document: this.reading.documents[view], error: this.reading.errors[view] };
  }

  // Reads the document of a view that has one, one at a time. Without a picture nothing may be known of the reader yet.
  async read(view, source, hasView) {
    const document = READ[view];
    const { reading } = this;
    if (!document || !(hasView || ALONE.has(view)) || source.isRecorded || reading.isBusy) return;
    reading.isBusy = true;
    try {
      reading.documents[view] = await document(source);
      reading.errors[view] = "";
    } catch (error) {
      reading.errors[view] = error.message;
    } finally {
      reading.isBusy = false;
    }
    if (reading === this.reading) this.arrived(view);
  }
}
