/** The nine panels in their order: each a function (data, state) => {marks, says}; without a state, what the run itself shows. */
import {clock} from "./clock.js";
import {pipeline, pulls, sides} from "./desk.js";
import {fresh} from "./fresh.js";
import {pair} from "./pair.js";
import {race} from "./race.js";
import {sample} from "./sample.js";
import {shelves} from "./shelves.js";

export const PANELS = {sample, head: pipeline, pulls, sides, fresh, race, clock, pair, shelves};
