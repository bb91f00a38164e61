/* Starts MathJax 3.2.2 (Apache License 2.0, see LICENSE here) from the components the book needs: TeX with the ams
 * package in, CHTML out, MathML for screen readers. The ready-made tex-chtml.js of MathJax also holds a menu and a
 * speech engine, which are more than half of it. The files beside this one are MathJax's own, unchanged (folder es5 of
 * its release), under the paths its loader expects. Settings in window.MathJax are kept.
 */
(function () {
  "use strict";
  var given = window.MathJax || {};
  window.MathJax = Object.assign({}, given, {
    loader: Object.assign({ load: ["input/tex-base", "[tex]/ams", "output/chtml", "a11y/assistive-mml"] }, given.loader),
    tex: Object.assign({ packages: ["base", "ams"] }, given.tex),
    startup: Object.assign({ input: ["tex"], output: "chtml" }, given.startup)
  });
  var script = document.createElement("script");
  script.src = document.currentScript.src.replace(/[^/]*$/, "startup.js");
  script.onload = given.onstart || null;
  script.onerror = given.onfail || null;
  document.head.appendChild(script);
})();
