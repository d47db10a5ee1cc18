package result

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// JUnit writes the suite for a build server: a test case for each run. A violated run under
// Fencekit is a failure, and an inconclusive one is an error. The runs of a control
// pass, red or not; the control's Doubt is an error. So there is a failure or an error if
// and only if the suite's verdict is not Pass.
func JUnit(w io.Writer, suite *Suite) error {
	suites := junitSuites{Suites: []junitSuite{junitFenced(suite), junitControls(suite)}}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", " ")
	if err := encoder.Encode(suites); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"` // seconds
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"` // seconds
	Failure *junitProblem `xml:"failure"`
	Error   *junitProblem `xml:"error"`
	Skipped *junitProblem `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func junitFenced(suite *Suite) junitSuite {
	s := junitSuite{Name: Fenced}
	var took time.Duration
	faults := false
	for _, r := range suite.of(Fenced) {
		faults = faults || r.Faults
		c := junitRun(&r)
		switch trouble := (&junitProblem{Message: r.Reason, Text: examples(&r)}); r.Verdict {
		case Violated:
			c.Failure = trouble
		case Inconclusive:
			c.Error = trouble
		}
		took += r.Took
		s.add(c)
	}
	if !faults {
		s.add(junitMissing(Fenced, noFenced))
	}
	if missing := suite.missing(); missing != "" {
		s.add(junitMissing("suite", missing))
	}
	s.Time = seconds(took)
	return s
}

func junitControls(suite *Suite) junitSuite {
	s := junitSuite{Name: "controls"}
	var took time.Duration
	controls := suite.Controls()
	for _, control := range controls {
		if doubt := control.Doubt(); doubt != "" {
			s.add(junitMissing(control.Group.Name, control.Group.Name+" "+doubt))
		}
		for _, r := range suite.of(control.Group.Name) {
			c := junitRun(&r)
			switch {
			case r.Red():
				c.Out = "red: " + r.Reason
			case r.Verdict == Violated:
				c.Out = "violated in another property than it has to be: " + r.Reason
			case r.Verdict == Pass:
				c.Out = "green"
			default:
				c.Skipped = &junitProblem{Message: r.Reason}
			}
			took += r.Took
			s.add(c)
		}
	}
	if len(controls) == 0 {
		s.add(junitMissing("controls", noControl))
	}
	s.Time = seconds(took)
	return s
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func junitRun(r *Run) junitCase {
	return junitCase{Class: r.Family + "." + r.Scenario, Name: r.String(), Time: seconds(r.Took)}
}

// junitMissing is a test case for what the suite lacks.
func junitMissing(group, reason string) junitCase {
	return junitCase{Class: "suite", Name: group, Time: seconds(0), Error: &junitProblem{Message: reason}}
}

// examples are the counterexamples of a run, a line each.
func examples(r *Run) string {
	var b strings.Builder
	for _, f := range r.Findings {
		for _, e := range f.Examples {
			fmt.Fprintf(&b, "%s: %s\n", f.Property, e)
		}
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
