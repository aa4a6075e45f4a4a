// Reference pages come first in the search, and what was measured or changed once comes last.
const PLACES = [
  ["docs/reference/", 4],
  ["docs/reference/config", 1],
  ["scripts/records/", -4],
  ["CHANGELOG", -4],
];

var Scorer = {
  score: ([page, , , , score]) =>
    score + PLACES.reduce((sum, [start, more]) => sum + (page.startsWith(start) ? more : 0), 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
