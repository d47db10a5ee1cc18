package check

// run reports what else is wrong with the code under test: it hung, it crashed, or it did
// not end as the script expects.
func run(v *view, t *tally) {
	t.look("its processes")
	if v.Wrong != "" {
		t.violate("%s", v.Wrong)
	}
}

// workload reports what the workload's own check said.
func workload(v *view, t *tally) {
	t.look("its own check")
	if v.Workload != "" {
		t.violate("%s", v.Workload)
	}
}
