package mutants

const (
	res = "chaos/internal/result/"
	cmd = "chaos/command/"
)

// inResult is a test of what runs come to.
func inResult(name string) Test { return Test{"chaos/internal/result", name} }

// inCommand is a test of fencectl-chaos.
func inCommand(name string) Test { return Test{"chaos/command", name} }

// verdictMutants are in what runs and suites come to, and in how it is reported.
var verdictMutants = []Mutant{
	change("verdict-forgets-the-workloads-check", "suite", res+"run.go",
		`Workload: r.Failed, Wrong`, `Wrong`,
		inResult("TestRun_JudgeGoesByWhatIsKeptOfIt")),
	change("verdict-forgets-what-else-was-wrong", "suite", res+"run.go",
		`Wrong: r.Wrong,`, ``,
		inResult("TestRun_JudgeGoesByWhatIsKeptOfIt")),
	change("verdict-drops-the-requirements", "suite", res+"run.go",
		`Progress: r.Progress, Requires: r.Requires,`, `Progress: r.Progress,`,
		inResult("TestRun_JudgeGoesByWhatIsKeptOfIt")),
	change("verdict-is-never-violated", "suite", res+"verdict.go",
		`case len(violated) > 0:`, `case false:`,
		inResult("TestVerdictOf_GivesItsReason")),
	change("verdict-of-nothing-is-pass", "suite", res+"verdict.go",
		`case held == 0:`, `case false:`,
		inResult("TestVerdictOf_GivesItsReason")),
	change("verdict-of-what-was-not-checked-is-pass", "suite", res+"verdict.go",
		`case len(nothing) > 0:`, `case false:`,
		inResult("TestVerdictOf_GivesItsReason")),

	change("suite-is-never-violated", "suite", res+"suite.go",
		`if fenced.Violated > 0 {`, `if false {`,
		inResult("TestSuite_Judge")),
	change("suite-passes-without-faults", "suite", res+"suite.go",
		`return r.Group == Fenced && r.Faults })`, `return r.Group == Fenced })`,
		inResult("TestSuite_Judge")),
	change("suite-passes-without-runs-that-were-asked-for", "suite", res+"suite.go",
		`if missing := s.missing(); missing != "" {`, `if missing := s.missing(); false {`,
		inResult("TestSuite_WithoutARunThatWasAskedForShowsNothing")),
	change("suite-passes-with-inconclusive-runs", "suite", res+"suite.go",
		`if fenced.Inconclusive > 0 {`, `if false {`,
		inResult("TestSuite_Judge")),
	change("suite-passes-without-controls", "suite", res+"suite.go",
		`if len(controls) == 0 {`, `if false {`,
		inResult("TestSuite_Judge")),
	change("suite-passes-with-controls-in-doubt", "suite", res+"suite.go",
		`if doubt := c.Doubt(); doubt != "" {`, `if doubt := c.Doubt(); false {`,
		inResult("TestSuite_Judge")),

	change("control-that-stays-green-counts", "suite", res+"control.go",
		`case c.Faults.Red == 0:`, `case false:`,
		inResult("TestSuite_Judge")),
	change("control-that-breaks-in-anything-counts", "suite", res+"run.go",
		`return slices.Contains(r.Breaks, property) })`, `return property != "" || slices.Contains(r.Breaks, property) })`,
		inResult("TestSuite_Judge")),
	change("control-that-never-ran-without-faults-counts", "suite", res+"control.go",
		`case c.Calm == Colors{}:`, `case false:`,
		inResult("TestSuite_Judge")),
	change("control-that-is-red-without-faults-counts", "suite", res+"control.go",
		`case c.Calm.Red > 0 && !c.Group.RedByDesign:`, `case false:`,
		inResult("TestSuite_Judge")),
	change("control-that-violates-another-property-without-faults-counts", "suite", res+"control.go",
		`case c.Calm.Other > 0:`, `case false:`,
		inResult("TestSuite_Judge")),
	change("inconclusive-control-without-faults-counts", "suite", res+"control.go",
		`case c.Calm.Inconclusive > 0:`, `case false:`,
		inResult("TestSuite_Judge")),

	change("verify-trusts-what-was-saved", "suite", res+"verify.go",
		"\t\trun.Judge(events, *observed)\n", "\t\t_, _ = events, observed\n",
		inResult("TestVerify_JudgesAgainByTheSavedFiles")),
	change("verify-does-not-judge-the-suite", "suite", res+"verify.go",
		"\tsuite.Judge()\n", "",
		inResult("TestVerify_JudgesAgainByTheSavedFiles")),
	change("verify-takes-a-history-that-was-cut-off", "suite", res+"verify.go",
		`is < was.Counts.Operations {`, `is < 0 {`,
		inResult("TestVerify_RejectsAHistoryThatWasCutOff")),

	change("exit-of-a-violation-is-0", "suite", cmd+"chaos.go",
		"case result.Pass:\n\t\treturn nil\n\tcase result.Violated:", "case result.Pass, result.Violated:\n\t\treturn nil\n\tcase \"\":",
		inCommand("TestChaosVerify_ExitsByTheVerdict")),
	change("exit-of-an-inconclusive-suite-is-0", "suite", cmd+"chaos.go",
		`return &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New(suite.Reason)}`, `return nil`,
		inCommand("TestChaosVerify_ExitsByTheVerdict")),
	change("exit-without-servers-is-that-of-nothing-shown", "suite", cmd+"run.go",
		`case errors.Is(err, run.ErrEnvironment):`, `case false:`,
		inCommand("TestChaosRun_AViolationStaysOneWhateverEndsTheSuite")),
	change("exit-of-a-wrong-scenario-is-not-usage", "suite", cmd+"run.go",
		`case errors.Is(err, workload.ErrConfig):`, `case errors.Is(err, workload.ErrConfig) && false:`,
		inCommand("TestUsage_Is64WithAHint")),
	change("exit-of-a-violation-gives-way-to-later-errors", "suite", cmd+"run.go",
		`case suite.Verdict == result.Violated:`, `case false:`,
		inCommand("TestChaosRun_AViolationStaysOneWhateverEndsTheSuite")),
	change("exit-of-a-violation-gives-way-to-a-table-that-is-not-written", "suite", cmd+"run.go",
		`return errors.Join(outcome(suite, err), writeErr)`, `return writeErr`,
		inCommand("TestRun_AViolationStaysOneIfTheTableIsNotWritten")),
}
