package result

import (
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// Verdict is the result of a run or of a suite.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"         // every property held, and what the scenario requires happened
	Violated     Verdict = "violated"     // a property was violated
	Inconclusive Verdict = "inconclusive" // nothing was violated, and nothing is proved
)

func (v Verdict) valid() bool { return v == Pass || v == Violated || v == Inconclusive }

// verdictOf returns the verdict of findings, and its reason: violated if a property was;
// otherwise inconclusive if one could not be checked, as when something that the scenario
// requires did not happen, or if none was checked.
func verdictOf(findings []check.Finding) (Verdict, string) {
	var violated, nothing []string
	held := 0
	for _, f := range findings {
		switch {
		case f.Status == check.Held:
			held++
		case f.Status == check.Irrelevant:
		case f.Status == check.Violated:
			violated = append(violated, textOf(f))
		default:
			nothing = append(nothing, textOf(f))
		}
	}
	switch {
	case len(violated) > 0:
		return Violated, strings.Join(violated, "; ")
	case len(nothing) > 0:
		return Inconclusive, strings.Join(nothing, "; ")
	case held == 0:
		return Inconclusive, "no property was checked"
	}
	return Pass, fmt.Sprintf("%s held", count(held, "property", "properties"))
}

func textOf(f check.Finding) string { return f.Property + ": " + f.Detail }

// count writes a number and what it counts.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
