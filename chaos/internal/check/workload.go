package check

// run passes on what else went wrong with what is tested: it hung, it crashed, or it
// did not end as its script has it.
func run(v *view, t *tally) {
	t.look("its processes")
	if v.Wrong != "" {
		t.violate("%s", v.Wrong)
	}
}

// workload passes on what the workload's own check said.
func workload(v *view, t *tally) {
	t.look("its own check")
	if v.Workload != "" {
		t.violate("%s", v.Workload)
	}
}
