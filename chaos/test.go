package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// Test does the runs that cfg asks for as subtests: one for each run under Fencekit,
// which fails unless the run passes, and one for each control that cfg names, which fails
// unless the same faults break it. By default Groups is Fencekit alone: controls can
// only run a Workload that works through Env.Do and Hold. The files of the runs, and a
// report to open in a browser, go to cfg.Dir; the test's log names the report. By default
// cfg.Dir is a temporary directory, which is kept if a test fails.
func Test(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Groups == nil {
		cfg.Groups = []string{Fenced}
	}
	own := cfg.Dir == ""
	if own {
		cfg.Dir = ownDir(t)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(p Progress) {
			if !p.Ended {
				t.Logf("run %d: %s", p.Done+1, p.Run)
			}
		}
	}
	suite, err := Run(t.Context(), cfg)
	if suite != nil {
		t.Cleanup(func() {
			if !own || t.Failed() {
				t.Logf("the report is %s", filepath.Join(cfg.Dir, check.ReportFile))
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range suite.Runs {
		if r := &suite.Runs[i]; r.Group == Fenced {
			t.Run(r.String(), func(t *testing.T) { judged(t, r) })
		}
	}
	for _, c := range suite.Controls() {
		t.Run(c.Name, func(t *testing.T) {
			if doubt := c.Doubt(); doubt != "" {
				t.Error(doubt)
			}
		})
	}
}

func judged(t *testing.T, r *Result) {
	t.Logf("%s: %s; %+v", r.Verdict, r.Reason, r.Counts)
	for _, text := range complaints(r) {
		t.Error(text)
	}
}

func complaints(r *Result) (all []string) {
	for _, f := range r.Findings {
		if f.Status == check.Held || f.Status == check.Irrelevant {
			continue
		}
		lines := append([]string{fmt.Sprintf("%s (%s): %s: %s", f.Property, f.Title, f.Status, f.Detail)}, f.Examples...)
		all = append(all, strings.ReplaceAll(strings.Join(lines, "\n"), "\n", "\n    "))
	}
	return all
}

func ownDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "fencekit-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
