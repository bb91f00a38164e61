/** Numbers as readers write them, and readers' numbers as the computer writes them. */

const SUPERSCRIPTS = {
  "-": "\u207b",
  0: "\u2070",
  1: "\u00b9",
  2: "\u00b2",
  3: "\u00b3",
  4: "\u2074",
  5: "\u2075",
  6: "\u2076",
  7: "\u2077",
  8: "\u2078",
  9: "\u2079",
};

/** An integer as superscripts: 10 + superscript(-3) reads ten to the minus three. */
export const superscript = (integer) => Array.from(String(integer), (one) => SUPERSCRIPTS[one] ?? one).join("");

/**
 * `value` with `digits` significant digits: 0.0123, 12 300 as 12,300, 1.2\u00d710\u207b\u2077; a true minus sign.
 * @param {number} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (Number.isNaN(value)) return "not defined";
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "\u2212\u221e";
  if (value === 0) return "0";
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  if (power < -4 || power > 5)
    return `${trim(mantissa)}\u00d710${superscript(power)}`.replace(/^(-?)1\u00d7/, "$1").replace("-", "\u2212");
  const decimals = Math.min(100, Math.max(0, digits - 1 - power));
  const text = trim(Number(`${mantissa}e${exponent}`).toFixed(decimals));
  const [whole, fraction] = text.split(".");
  const grouped = whole.replace(/^(-?)(\d{2,})(\d{3})$/, "$1$2,$3");
  return (fraction ? `${grouped}.${fraction}` : grouped).replace("-", "\u2212");
}

const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** A share as a percentage: 0.123 -> 12.3 %. */
export const percent = (value, digits = 3) =>
  Number.isFinite(value) ? `${number(100 * value, digits)}\u00a0%` : number(value);

/** Ten to the power of `exponent`, where the number itself may be too small or too large: 3.2\u00d710\u207b\u2074\u2070\u2070. */
export function powerOfTen(exponent, digits = 2) {
  if (!Number.isFinite(exponent)) return exponent < 0 ? "0" : number(exponent);
  if (exponent > -4 && exponent < 300) return number(10 ** exponent, digits);
  const whole = Math.floor(exponent);
  const mantissa = Number((10 ** (exponent - whole)).toPrecision(digits));
  const [shown, power] = mantissa >= 10 ? [mantissa / 10, whole + 1] : [mantissa, whole];
  return `${shown === 1 ? "" : `${shown}\u00d7`}10${superscript(power)}`.replace("-", "\u2212");
}

/** A number for a field or an address: shortest text that reads back as the same number. */
export function plain(value) {
  const far = value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4);
  return (far ? value.toExponential() : String(value)).replace("e+", "e");
}

/** What a reader typed as a number: 0.5, 1e-3, \u22122, 10^6 or 1,000; NaN for anything else. */
export function parse(text) {
  const tidy = String(text)
    .trim()
    .replace(/\u2212/g, "-")
    .replace(/^(-?\d{1,3})(,\d{3})+(?=\.|$)/, (all) => all.replace(/,/g, ""))
    .replace(/^10\^(-?\d+)$/, "1e$1");
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(tidy) ? Number(tidy) : NaN;
}

/** `value` rounded to `digits` significant digits. */
export const rounded = (value, digits) => (value === 0 ? 0 : Number(value.toPrecision(digits)));
