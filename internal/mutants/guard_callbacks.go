package mutants

// callbackMutants are in how functions that users configure are called.
var callbackMutants = []Mutant{
	change("observers-run-on-the-callers-goroutine", "G1 L1", g+"reporter.go",
		`if failure := callback.Run(call); failure != nil {`, `var failure *callback.Failure; if call(); failure != nil {`,
		inGuard("TestCallbacks_ThatDoNotReturnChangeNothing_L1/Observer_Goexit")),
	change("loggers-run-on-the-callers-goroutine", "G1 L1", "internal/callback/logger.go",
		`return slog.New(handler{l.Handler()})`, `return l`,
		inGuard("TestCallbacks_ThatDoNotReturnChangeNothing_L1/Logger_Goexit")),
	change("goexit-of-a-callback-is-not-noticed", "G1", "internal/callback/callback.go",
		`failure.Panic = Goexit`, `failure = nil`,
		Test{"internal/callback", "TestRun_SaysHowACallbackEnded"}),
	change("lockers-end-the-keepers-goroutine", "L1", g+"ownership.go",
		`if failure := callback.Run(func() { err = lease.Release(ctx) }); failure != nil {`,
		`var failure *callback.Failure; if err = lease.Release(ctx); failure != nil {`,
		inGuard("TestUserCode_ThatDoesNotReturnLeaksNothing_L1/Release_Goexit")),
	change("release-without-a-context-ends-half-way", "L1", "fence/etcd/internal/queue/lease.go",
		"\tif ctx == nil {", "\tif false {",
		Test{"fence/etcd", "TestRelease_WithoutAContextGivesTheResourceUp"}),
}
