// Package result is the saved results of chaos runs: their verdicts, and all that is needed
// to read, compare and judge them again.
//
// # Files
//
// A Suite is a directory: result.json (the Suite), report.html, junit.xml, and for
// each run a directory, three levels below, with history.jsonl, observed.json and result.json (the Run),
// which is written last: a run that has it is complete. LoadSuite finds the runs by
// it, even if the suite ended before its own file was written.
//
// # Verdicts
//
// A run is violated if a property was, inconclusive if it proves nothing, and passes
// otherwise. A suite is judged by its runs under Fencekit, by whether the same faults
// break its controls, and by whether all runs that were asked for are there.
//
// # What is not promised
//
// Files are trusted: Load takes what they say for what happened. Quantiles of several runs
// are the worst of each, not those of all operations.
package result
