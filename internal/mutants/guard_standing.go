package mutants

// standingMutants are in what a Guard remembers of a grant's transactions from one call
// to the next, and in what it says about them.
var standingMutants = []Mutant{
	change("overtaken-grant-keeps-its-position", "G6 L1", g+"engine.go",
		"\tss.claimed(true) // nothing was committed, so the positions are what they were\n\treturn e.judge(ss, err)\n",
		"\terr = e.judge(ss, err)\n\tss.claimed(true)\n\treturn err\n",
		inGuard("TestRetryable_RunsAgainAfterWhatTookNoEffect_G4/overtaken")),
	change("unknown-is-hidden-by-the-end-of-the-context", "G4", g+"retry.go",
		"\t\terr := once()\n", "\t\terr := once()\n\t\tif err != nil && ctx.Err() != nil {\n\t\t\treturn ended(ctx)\n\t\t}\n",
		inGuard("TestUnknown_StaysSoWhenTheCallersContextHasEnded_G4")),
	change("unknown-of-a-try-is-hidden-by-the-end-of-the-context", "G4", g+"engine.go",
		`return e.resolve(detached, ss, op, doubt)`,
		"if err := e.resolve(detached, ss, op, doubt); err == nil || ctx.Err() == nil {\n\t\t\treturn err\n\t\t}\n\t\treturn ended(ctx)",
		inGuard("TestUnknown_StaysSoWhenTheCallersContextHasEnded_G4")),
	change("settling-has-no-bound", "L1", g+"standing.go",
		`ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)`, `ctx, cancel := context.WithCancel(ctx)`,
		inGuard("TestUnknown_AskingIsBoundedByResolveTimeout_L1")),
	change("resolving-has-no-bound", "L1", g+"engine.go",
		`ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)`, `ctx, cancel := context.WithCancel(ctx)`,
		inGuard("TestUnknown_AskingIsBoundedByResolveTimeout_L1")),
	change("once-takes-lists-that-read-alike-for-the-same", "G4", g+"once.go",
		`names, _ := json.Marshal(resources)`, `names := []byte(fmt.Sprint(resources))`,
		inGuard("TestOnce_OverSeveralResources_G4")),
	change("once-overrides-the-id", "G4", g+"options.go",
		`if o.once != nil && o.record.ID == "" {`, `if o.once != nil {`,
		inGuard("TestOnce_LeavesAnOpIDAsItIs")),
	change("doubts-of-leases-that-ended-are-kept", "HD13", g+"close.go",
		`context.AfterFunc(t.lease.Context(), func() { k.forget(t.grant) })`, ``,
		inGuard("TestHoldLease_KeepsNoDoubtForEver/released")),
	change("doubts-that-were-settled-are-kept", "HD13", g+"close.go",
		`delete(k.doubts, t.grant)
	}
	k.pending--`, `_ = inherited
	}
	k.pending--`,
		inGuard("TestHoldLease_KeepsNoDoubtForEver/settled")),
	change("max-run-deposes-leaders", "L1", g+"hold.go",
		`return g.hold(ctx, t, 0, fn)`, `return g.hold(ctx, t, g.keeper.cfg.MaxRun, fn)`,
		inGuard("TestHoldLease_IsNotBoundByMaxRun")),
	change("transactions-that-overrun-depose-leaders", "L1", g+"tenure.go",
		`if t.borrowed {`, `if false {`,
		inGuard("TestHoldLease_IsNotBoundByMaxRun")),
}
