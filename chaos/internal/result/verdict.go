package result

import (
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// Verdict is what a run, or several, have shown.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"         // every property held, and the run met what it was meant to meet
	Violated     Verdict = "violated"     // a property was violated
	Inconclusive Verdict = "inconclusive" // nothing was violated, but the run shows nothing
)

func (v Verdict) valid() bool { return v == Pass || v == Violated || v == Inconclusive }

// verdictOf is the verdict that findings come to, and its reason: violated if a
// property was, else inconclusive if one could not be checked, as when the run
// didn't meet what it was meant to meet, or if nothing was checked at all.
func verdictOf(findings []check.Finding) (Verdict, string) {
	var violated, nothing []string
	held := 0
	for _, f := range findings {
		switch {
		case f.Status == check.Held:
			held++
		case f.Status == check.Irrelevant:
		case f.Status == check.Violated:
			violated = append(violated, told(f))
		default:
			nothing = append(nothing, told(f))
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

func told(f check.Finding) string { return f.Property + ": " + f.Detail }

// count writes a number with what it counts.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
