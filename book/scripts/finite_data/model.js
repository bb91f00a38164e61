/** Mean attention of a softmax over two tokens with a uniform score gap. Mirrors attnlib.finite_data. */

/** Mean attention on the first token, 1 + log((1 + e^-a) / 2) / a; attnlib: mean_attention. */
export const meanAttention = (a) => 1 + Math.log1p(Math.expm1(-a) / 2) / a;

export const functions = {
  mean_attention: ({largest_gap}) => meanAttention(largest_gap),
};
