package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/bench/internal/result"
)

// The layout of the chart, in units of the SVG: so few that its text can be read on a phone.
const (
	lineWidth  = 420
	lineHeight = 220
)

// line is how one contender's rate developed.
type line struct {
	name  string
	rates []float64
	step  float64 // seconds
}

// timeline draws rates over time in the first round, on a logarithmic scale: contenders differ by orders.
func (v view) timeline() template.HTML {
	var all []line
	for _, c := range v.s.Contenders {
		i := slices.IndexFunc(v.run.Cells, func(cell result.Cell) bool {
			return cell.Scenario == v.s.Name && cell.Contender == c.Name && cell.Regime == v.regime && cell.Err == "" && len(cell.Timeline) > 0
		})
		if i < 0 {
			continue
		}
		cell := v.run.Cells[i]
		l := line{name: c.Name, step: cell.Seconds / float64(len(cell.Timeline))}
		for _, n := range cell.Timeline {
			l.rates = append(l.rates, float64(n)/l.step)
		}
		all = append(all, l)
	}
	most, least, steps := 0.0, math.Inf(1), 0
	for _, l := range all {
		steps = max(steps, len(l.rates))
		for _, v := range l.rates {
			most = math.Max(most, v)
			if v > 0 {
				least = math.Min(least, v)
			}
		}
	}
	if most == 0 || steps < 2 {
		return ""
	}
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	high = math.Max(high, low+1)
	const left, right = 72, lineWidth - 6
	y := func(v float64) float64 {
		return 10 + (high-math.Max(math.Log10(v), low))/(high-low)*(lineHeight-30)
	}
	x := func(i int) float64 { return left + float64(i)/float64(steps-1)*(right-left) }
	var svg, legend strings.Builder
	fmt.Fprintf(&svg, `<svg viewBox="0 0 %d %d" role="img" aria-label="Operations a second over time">`, lineWidth, lineHeight)
	for p := low; p <= high; p++ {
		v := math.Pow(10, p)
		fmt.Fprintf(&svg, `<path class="grid" d="M%d %.1f H%d"/><text x="%d" y="%.1f" text-anchor="end">%s/s</text>`, left, y(v), right, left-6, y(v)+4, number(v))
	}
	fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%s s</text>`, right, lineHeight-4, number(float64(steps)*all[0].step))
	for i, l := range all {
		var points strings.Builder
		for j, v := range l.rates {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(j), y(math.Max(v, least)))
		}
		fmt.Fprintf(&svg, `<polyline class="l%d" points="%s"/>`, i%lineColours, strings.TrimSpace(points.String()))
		fmt.Fprintf(&legend, `<li class="l%d">%s</li>`, i%lineColours, template.HTMLEscapeString(l.name))
	}
	return template.HTML(svg.String() + `</svg><ul class="legend">` + legend.String() + "</ul>")
}

// lineColours is how many the page has.
const lineColours = 8
