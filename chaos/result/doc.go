// Package result is what is kept of chaos runs: their verdicts, with all that is
// needed to read, compare and judge them again.
//
// # Files
//
// A Suite is a directory: result.json (the Suite), report.html, junit.xml, and for
// each run a directory with history.jsonl, observed.json and result.json (the Run).
// Verify reads those again.
package result
