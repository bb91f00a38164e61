/**
 * Unpack what book/attnbook/explorers/packing.py packed: curves of fixed-point numbers, differences, adaptive Rice code, base64.
 * @module
 */
const ESCAPE = 24; // ones that announce a plain number
const PLAIN = 25; // and its bits
const MEMORY = 8; // differences over which the size of the next one is estimated

/** Reads bits, the highest of a byte first. */
function bitReader(text) {
  const bytes = atob(text);
  let place = 0;
  const bit = () => {
    const value = (bytes.charCodeAt(place >> 3) >> (7 - (place & 7))) & 1;
    place += 1;
    return value;
  };
  const bits = (count) => {
    let value = 0;
    for (let i = 0; i < count; i += 1) value = 2 * value + bit();
    return value;
  };
  return {bit, bits};
}

/**
 * @param {string} text
 * @param {number} count curves
 * @param {number} length values of each
 * @param {number} resolution of a value
 * @returns {Float64Array[]}
 */
export function unpack(text, count, length, resolution) {
  const {bit, bits} = bitReader(text);
  return Array.from({length: count}, () => {
    const second = bit() === 1;
    let [total, seen, value, slope] = [16, 1, 0, 0];
    return Float64Array.from({length}, () => {
      let k = 0;
      while (seen * 2 ** k < total) k += 1;
      let ones = 0;
      while (ones < ESCAPE && bit() === 1) ones += 1;
      const u = ones < ESCAPE ? ones * 2 ** k + bits(k) : bits(PLAIN);
      const r = u % 2 === 0 ? u / 2 : -(u + 1) / 2;
      slope = second ? slope + r : r;
      value += slope;
      total += u;
      seen += 1;
      if (seen === MEMORY) [total, seen] = [Math.floor(total / 2), Math.floor(seen / 2)];
      return value * resolution;
    });
  });
}
