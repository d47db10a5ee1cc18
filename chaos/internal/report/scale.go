package report

import (
	"fmt"
	"math"
	"time"
)

// scale maps values to pixels.
type scale struct{ fromValue, toValue, fromPixel, toPixel float64 }

// at is the pixel of a value.
func (s scale) at(value float64) float64 {
	if s.toValue == s.fromValue {
		return s.fromPixel
	}
	return s.fromPixel + (value-s.fromValue)/(s.toValue-s.fromValue)*(s.toPixel-s.fromPixel)
}

// within is at, limited to the picture.
func (s scale) within(value float64) float64 {
	low, high := min(s.fromValue, s.toValue), max(s.fromValue, s.toValue)
	return s.at(min(max(value, low), high))
}

// perPixel is the value of a pixel.
func (s scale) perPixel() float64 {
	return math.Abs((s.toValue - s.fromValue) / (s.toPixel - s.fromPixel))
}

// ticks are round values on the scale, about that many.
func (s scale) ticks(about int) []float64 {
	width := s.toValue - s.fromValue
	if width <= 0 || about < 1 {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(width/float64(about))))
	for _, factor := range []float64{1, 2, 5, 10} {
		if width/(step*factor) <= float64(about) {
			step *= factor
			break
		}
	}
	var ticks []float64
	for i := math.Ceil(s.fromValue / step); i*step <= s.toValue; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// timeAxis draws seconds from the beginning of the scale, along y.
func (d *drawing) timeAxis(x scale, y float64) {
	inSeconds := scale{0, (x.toValue - x.fromValue) / float64(time.Second), x.fromPixel, x.toPixel}
	for _, tick := range inSeconds.ticks(8) {
		d.line("tick", inSeconds.at(tick), y, inSeconds.at(tick), y+4)
		d.text("axis", inSeconds.at(tick), y+15, middle, fmt.Sprintf("%g s", math.Round(tick*1000)/1000))
	}
}
