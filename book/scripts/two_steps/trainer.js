/** Trains random sets at the point when the reader rests, one set per slice, so that the page never stalls. */
import {trainSets} from "./real.js";
import {medianOf} from "./words.js";

const COUNT = 10;
const LARGEST = 400; // samples: a set takes about 30 ms
const REST = 250; // milliseconds without another request

export class Trainer {
  /** @param {() => void} done called when all sets are trained */
  constructor(done) {
    Object.assign(this, {done, timer: 0, sets: [], refusal: ""});
  }

  get median() {
    return medianOf(this.sets);
  }

  get fitting() {
    return this.sets.filter((set) => set.fits).length;
  }

  /** Forget what was trained; train again when no other request comes. */
  request({n, d, signal_norm, label_noise, step, first_class_share, trained}) {
    clearTimeout(this.timer);
    this.sets = [];
    this.refusal = "";
    if (!trained) return;
    if (n > LARGEST)
      this.refusal = `Random sets are trained here up to n = ${LARGEST}; the command below trains larger ones.`;
    else if (first_class_share !== 0.5)
      this.refusal = "Random sets divide their flips by chance, so none is trained at a fraction chosen by hand.";
    if (this.refusal) return;
    const sets = [];
    const next = () => {
      sets.push(...trainSets({n, d, signal_norm, label_noise, step, count: 1, first: sets.length}));
      if (sets.length < COUNT) {
        this.timer = setTimeout(next, 0);
        return;
      }
      this.sets = sets;
      this.done();
    };
    this.timer = setTimeout(next, REST);
  }
}
