package mutants

const ch = "chaos/"

// inChaos is a test of the chaos suite's engine.
func inChaos(name string) Test { return Test{"chaos", name} }

// engineMutants are in how the chaos suite runs.
var engineMutants = []Mutant{
	change("fault-is-told-and-not-done", "suite", ch+"nemesis.go",
		`heal, err = f.Strike(ctx, s)`, `heal = func(context.Context) error { return nil }`,
		inChaos("TestPlay_TellsWhatItDoesAndUndoesIt")),
	change("fault-is-never-healed", "suite", ch+"nemesis.go",
		`if err := heal(bounded); err != nil {`, `if err := bounded.Err(); err != nil {`,
		inChaos("TestPlay_TellsWhatItDoesAndUndoesIt")),
	change("fault-that-missed-is-told-as-one", "suite", ch+"nemesis.go",
		`s.story.tell(history.Event{Kind: history.Note, Name: "missed", Error: fmt.Sprintf("%s: %v", f, err)})`, `s.story.tell(history.Event{Kind: history.Strikes, Name: f.String()})`,
		inChaos("TestPlay_TellsWhatItDoesAndUndoesIt")),
	change("fault-that-stays-is-not-told", "suite", ch+"nemesis.go",
		`return fmt.Errorf("chaos: healing %s: %w", f, err)`, `return nil`,
		inChaos("TestRun_WithoutItsEnvironmentSaysSo")),
	change("faults-happen-in-calm-runs", "suite", ch+"perform.go",
		`if s.Faults {`, `if true {`,
		inChaos("TestRun_IsWhatItSays/without_faults")),
	change("last-phase-is-not-there", "suite L1", ch+"perform.go",
		`return s.finally(ctx)`, `return nil`,
		inChaos("TestRun_IsWhatItSays/with_faults")),
	change("hang-is-no-violation", "suite", ch+"perform.go",
		"s.fails(err)\n\t\treturn nil", "return nil",
		inChaos("TestRun_ThatIsNotOverInTimeIsViolated")),
	change("trap-lets-pass", "suite", ch+"points.go",
		`if err := stop(); err != nil {`, `if err := stop; err == nil {`,
		inChaos("TestArm_StopsAtThePointUntilResumed")),
	change("observer-leaves-early", "suite", "chaos/observe/watch.go",
		`if err := w.catchUp(ctx); err != nil {`, "w.cancel()\n\t<-w.done\n\tif err := ctx.Err(); err != nil {",
		Test{"chaos/observe", "TestClose_CatchesUp"}),
	change("check-is-not-asked", "suite", ch+"run.go",
		`if s.checked = s.onData(ctx, "Check", s.workload.Check); errors.Is`, `if errors.Is`,
		inChaos("TestRun_CodeThatHangsOrCrashesIsViolated/is_found_wrong")),
	change("interrupted-run-has-a-verdict", "suite", ch+"run.go",
		`if err := errors.Join(err, s.story.recorder.Err(), context.Cause(ctx)); err != nil {`, `if err := errors.Join(err, s.story.recorder.Err()); err != nil {`,
		inChaos("TestRun_EndedInItsCheckHasNoVerdict")),
	change("environment-is-not-told-from-the-workload", "suite", ch+"suite.go",
		`err = fmt.Errorf("%w: %w", ErrEnvironment, err)`, `_ = err`,
		inChaos("TestRun_WithoutItsEnvironmentSaysSo")),
}
