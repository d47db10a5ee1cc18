package cli

import (
	"fmt"
	"strings"
)

// Counted writes a number with the noun of what it counts: "1 entry", "2 entries", "2 keys".
func Counted[N int | int64](n N, noun string) string {
	stem, y := strings.CutSuffix(noun, "y")
	switch {
	case n == 1:
		return "1 " + noun
	case y && !strings.HasSuffix(stem, "e"):
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
