package mutants

const (
	environment = "chaos/internal/environment/"
	runner      = "chaos/internal/run/"
)

// inEnvironment is a test of the environment of the chaos suite's runs.
func inEnvironment(name string) Test { return Test{"chaos/internal/environment", name} }

// inRun is a test of how the chaos suite runs.
func inRun(name string) Test { return Test{"chaos/internal/run", name} }

// engineMutants are in how the chaos suite runs.
var engineMutants = []Mutant{
	change("fault-is-recorded-and-not-injected", "suite", environment+"nemesis.go",
		`revert, err = f.Inject(ctx, s)`, `revert = func(context.Context) error { return nil }`,
		inEnvironment("TestPlay_RecordsInjectsAndRevertsEachFault")),
	change("fault-is-never-reverted", "suite", environment+"nemesis.go",
		`if err := revert(bounded); err != nil {`, `if err := bounded.Err(); err != nil {`,
		inEnvironment("TestPlay_RecordsInjectsAndRevertsEachFault")),
	change("missed-fault-is-recorded-as-injected", "suite", environment+"nemesis.go",
		`s.cfg.Trace.Record(history.Event{Kind: history.Note, Name: "missed", Error: fmt.Sprintf("%s: %v", f, err)})`, `s.cfg.Trace.Record(history.Event{Kind: history.Injected, Name: f.String()})`,
		inEnvironment("TestPlay_RecordsInjectsAndRevertsEachFault")),
	change("failed-revert-is-not-reported", "suite", environment+"nemesis.go",
		`return fmt.Errorf("chaos: reverting %s: %w", f, err)`, `return nil`,
		inRun("TestRun_WithoutItsEnvironmentIsAnError")),
	change("faults-happen-in-calm-runs", "suite", environment+"load.go",
		`if s.cfg.Faults {`, `if true {`,
		inRun("TestRun_InjectsRecordsAndObserves/without_faults")),
	change("load-is-not-there", "suite", environment+"load.go",
		`if err := w.Command(worker.Command{Load: true}); err != nil {`, `if err := w.Command(worker.Command{}); err != nil {`,
		inRun("TestRun_InjectsRecordsAndObserves/with_faults")),
	change("last-phase-is-not-there", "suite L1", runner+"perform.go",
		`return p.env.FinalOperations(ctx)`, `return nil`,
		inRun("TestRun_InjectsRecordsAndObserves/with_faults")),
	change("hang-is-no-violation", "suite", runner+"perform.go",
		"p.env.Fail(err)\n\t\treturn nil", "return nil",
		inRun("TestRun_ThatIsNotOverInTimeIsViolated")),
	change("trap-lets-pass", "suite", "chaos/internal/worker/points.go",
		`if err := stop(); err != nil {`, `if err := stop; err == nil {`,
		inEnvironment("TestArm_StopsAtThePointUntilResumed")),
	change("observer-comes-late", "suite", runner+"perform.go",
		"\tobserver, err := p.env.Observe(ctx)\n\tif err != nil {\n\t\treturn observe.Observation{}, err\n\t}\n", "",
		inRun("TestRun_InjectsRecordsAndObserves/with_faults")).and(
		Edit{runner + "perform.go", "\tif err != nil {\n\t\terr = errors.Join(err, p.env.KillWorkers())\n\t} else {\n\t\terr = p.conclude(ctx)\n\t}\n",
			"\tobserver, startErr := p.env.Observe(ctx)\n\tif err = errors.Join(err, startErr); err != nil {\n\t\treturn observe.Observation{}, errors.Join(err, p.env.KillWorkers())\n\t}\n\terr = p.conclude(ctx)\n"}),
	change("observer-forgets-what-the-old-primary-committed", "suite", "chaos/internal/observe/decode.go",
		`slices.Concat(l.earlier, commits)`, `slices.Concat(commits)`,
		Test{"chaos/internal/observe", "TestCommits_AreThoseOfAllServers"}),
	change("observer-stays-with-the-old-primary", "suite", "chaos/internal/observe/decode.go",
		`l.slot, l.earlier = next.slot, earlier`, `_, l.earlier = next.slot, earlier`,
		Test{"chaos/internal/observe", "TestCommits_AreThoseOfAllServers"}),
	change("observer-leaves-early", "suite", "chaos/internal/observe/watch.go",
		`if err := w.catchUp(ctx); err != nil {`, "w.cancel()\n\t<-w.done\n\tif err := ctx.Err(); err != nil {",
		Test{"chaos/internal/observe", "TestClose_CatchesUp"}),
	change("requirements-of-a-run-are-dropped", "suite", runner+"run.go",
		`r.Requires = t.scenario.Requires`, `r.Requires = nil`,
		inRun("TestRun_InjectsRecordsAndObserves/without_what_it_requires")),
	change("crash-is-no-violation", "suite", runner+"perform.go",
		`wrong := errors.Join(p.env.Crashes(), p.env.WithoutOutcome())`, `wrong := p.env.WithoutOutcome()`,
		inRun("TestRun_CodeThatCrashesOrIsWrongIsViolated/exits")),
	change("what-the-check-says-is-forgotten", "suite", runner+"run.go",
		`text(p.checked), text(env.Failed())`, `"", text(env.Failed())`,
		inRun("TestRun_CodeThatCrashesOrIsWrongIsViolated/is_found_wrong")),
	change("check-that-hangs-is-no-violation", "suite", runner+"perform.go",
		"\t\tp.env.Fail(p.checked) // it has said nothing of the data\n", "",
		inRun("TestRun_EndsWhateverPrepareAndCheckDo")),
	change("check-is-not-asked", "suite", runner+"perform.go",
		`if p.checked = p.env.OnData(ctx, "Check", p.task.workload.Check); errors.Is`, `if errors.Is`,
		inRun("TestRun_CodeThatCrashesOrIsWrongIsViolated/is_found_wrong")),
	change("interrupted-run-has-a-verdict", "suite", runner+"run.go",
		`if err := errors.Join(err, trace.Err(), context.Cause(ctx)); err != nil {`, `if err := errors.Join(err, trace.Err()); err != nil {`,
		inRun("TestRun_EndedInItsCheckHasNoVerdict")),
	change("failure-of-the-environment-is-not-named", "suite", runner+"suite.go",
		`err = fmt.Errorf("%w: %w", ErrEnvironment, err)`, `_ = err`,
		inRun("TestRun_WithoutItsEnvironmentIsAnError")),
	change("resumed-suite-skips-what-was-not-done", "suite", runner+"suite.go",
		`return s.done[t.dir()]`, `return len(s.done) > 0`,
		inRun("TestRun_ResumesWhatWasEnded/interrupt")),
	change("resumed-suite-does-again-what-was-done", "suite", runner+"suite.go",
		`return s.done[t.dir()]`, `return false`,
		inRun("TestRun_ResumesWhatWasEnded/interrupt")),
}
