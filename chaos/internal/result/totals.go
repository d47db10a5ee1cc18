package result

// Totals are the figures of several runs together.
type Totals struct {
	Runs         int       `json:"runs"`
	Violated     int       `json:"violated"`
	Inconclusive int       `json:"inconclusive"`
	Counts       Counts    `json:"counts"`    // summed up
	Latency      Quantiles `json:"latency"`   // the worst of each
	HandOver     Quantiles `json:"hand_over"` // the worst of each
}

// Sum adds up runs.
func Sum(runs []Run) Totals {
	t := Totals{Runs: len(runs)}
	for i := range runs {
		r := &runs[i]
		switch r.Verdict {
		case Violated:
			t.Violated++
		case Inconclusive:
			t.Inconclusive++
		}
		add(&t.Counts, r.Counts)
		t.Latency = t.Latency.worse(r.Latency)
		t.HandOver = t.HandOver.worse(r.HandOver)
	}
	return t
}

func add(c *Counts, d Counts) {
	c.Operations += d.Operations
	c.OK += d.OK
	c.Failed += d.Failed
	c.Unknown += d.Unknown
	c.Rejections += d.Rejections
	c.Faults += d.Faults
	c.Oversold += d.Oversold
	c.Lost += d.Lost
}
