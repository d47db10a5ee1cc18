package mutants

import (
	"bytes"
	"encoding/json"
	"strings"
)

// testRun is what "go test -json" reported.
type testRun struct {
	verdicts    map[string]string // "pass", "fail" or "skip", by test
	output      string
	buildFailed bool
	timedOut    bool
}

// readEvents reads the lines of "go test -json", among which others may be.
func readEvents(out []byte) *testRun {
	run := &testRun{verdicts: map[string]string{}}
	var text strings.Builder
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
		switch e.Action {
		case "build-fail":
			run.buildFailed = true
		case "pass", "fail", "skip":
			if e.Test != "" {
				run.verdicts[e.Test] = e.Action
			}
		}
	}
	run.output = text.String()
	run.timedOut = strings.Contains(run.output, "panic: test timed out after ")
	return run
}
