/** An explorer that has one of everything; only the tests of the shell bundle it. Its formulas are easily told apart. */
import {ramp} from "../../book/scripts/shared/colours.js";
import {mount} from "../../book/scripts/shared/shell.js";

const grid = (low, high, count) => Array.from({length: count + 1}, (_, i) => low + ((high - low) * i) / count);
const middles = (edges) => edges.slice(1).map((edge, i) => (edge + edges[i]) / 2);

mount("sample", {
  data: true,
  controls: [
    {
      key: "strength",
      label: "strength <i>ρ</i>",
      kind: "log-range",
      min: 0.1,
      max: 100,
      value: 4,
      count: 120,
      help: "how long <i>μ</i> is",
    },
    {
      key: "noise",
      label: "noise <i>η</i>",
      kind: "range",
      min: 0,
      max: 0.45,
      step: 0.01,
      value: 0.1,
      play: {seconds: 1},
    },
    {key: "n", label: "samples <i>n</i>", kind: "log-range", min: 10, max: 1e5, integer: true, value: 200},
    {
      key: "rule",
      label: "rule",
      kind: "choice",
      options: [
        {value: 1, label: "first"},
        {value: 2, label: "second"},
      ],
      value: 1,
    },
    {key: "shown", label: "show the second line", kind: "toggle", value: true},
  ],
  plots: [
    {
      key: "map",
      label: "Map over strength and noise",
      height: 300,
      x: {label: "strength <i>ρ</i>", scale: "log", domain: [0.1, 100]},
      y: {label: "noise <i>η</i>", domain: [0, 0.45]},
    },
    {
      key: "curve",
      label: "Curves over time",
      height: 300,
      x: {label: "time <i>t</i>", domain: [0, 10]},
      y: {label: "share <i>s</i><sub>1</sub>", domain: [0, 1]},
    },
  ],
  values: [
    {key: "product", label: "strength times noise"},
    {key: "offset", label: "from the data"},
    {key: "small", label: "small", digits: 2},
  ],
  command: ({n, noise}) => `python -m attnlib rerun sample n=${n} noise=${noise}`,
  update({strength, noise, n, rule, shown}, {plots: {map, curve}, values, say, data, set}) {
    if (n === 11) throw new Error("eleven samples are too few");
    const [x, y] = [grid(-1, 2, 24).map((power) => 10 ** power), grid(0, 0.45, 9)];
    const risk = (a, b) => 1 / (1 + a) + b;
    map.heat({
      x,
      y,
      values: middles(y).map((b) => middles(x).map((a) => risk(a, b))),
      colour: ramp("sides", [0, 1.4]),
      bar: {label: "risk"},
    });
    map.contours([
      {
        key: "level",
        x: middles(x),
        y: middles(y),
        values: middles(y).map((b) => middles(x).map((a) => risk(a, b))),
        levels: [0.5],
      },
    ]);
    map.rules([{x: 2, label: "<i>x</i>*"}]);
    map.marker({
      key: "here",
      x: strength,
      y: noise,
      label: "here",
      name: "the point",
      draggable: true,
      onmove: ([a, b]) => set({strength: a, noise: b}),
    });
    map.onpoint(([a, b]) => set({strength: a, noise: b}));
    const rise = (rate) => grid(0, 10, 50).map((t) => [t, 1 - Math.exp(-rate * t)]);
    curve.areas([
      {key: "band", points: rise(0.3).map(([t, s]) => [t, s - 0.05, s + 0.05]), colour: "clean", label: "nine of ten"},
    ]);
    curve.lines([
      {key: "one", points: rise(0.3), colour: "clean", label: "clean"},
      ...(shown ? [{key: "two", points: rise(noise), colour: "noisy", dash: true, label: "noisy"}] : []),
    ]);
    curve.points([
      {
        key: "seen",
        points: [
          [2, 0.45, 0.05],
          [5, 0.8, 0.04],
        ],
        colour: "clean",
        label: "clean",
      },
    ]);
    curve.marker({
      key: "rate",
      x: 5,
      y: noise,
      label: "<i>η</i>",
      colour: "noisy",
      draggable: "y",
      step: [1, 0.02],
      onmove: ([a, b]) => set({strength: a, noise: b, rule: 2}),
    });
    values({product: strength * noise, offset: data.offset + (rule === 2 ? 100 : 0), small: n * 1e-9});
    if (strength > 5) say("The signal wins.", {badge: "holds", word: "benign"});
    else say("The noise wins.", {badge: "fails", word: "harmful"});
  },
});
