package transport

import (
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/fence"
)

// maxGrants is how many grants a request may come with: as many as one call of guard
// takes resources.
const maxGrants = 100

// ParseGrants reads the values of a header that has one grant per value. Proxies may join values with commas
// (RFC 9110, 5.3), which the text form of a grant doesn't have. Its error is an [*fence.InvalidGrantError],
// bounded in length whatever the values are.
func ParseGrants(values []string) ([]fence.Grant, error) { return parse(values, fence.ParseGrant) }

// SentGrants returns the grants in the values, signed or not, as their sender knows them; none if
// one can't be read.
func SentGrants(values []string) []fence.Grant {
	grants, _ := parse(values, func(text string) (fence.Grant, error) {
		text, _, _ = strings.Cut(text, separator)
		return fence.ParseGrant(text)
	})
	return grants
}

func parse(values []string, one func(text string) (fence.Grant, error)) ([]fence.Grant, error) {
	var grants []fence.Grant
	seen := map[string]bool{}
	for _, value := range values {
		for text := range strings.SplitSeq(value, ",") {
			if len(grants) == maxGrants {
				return nil, &fence.InvalidGrantError{Part: "text form", Reason: fmt.Sprintf("has more than %d grants", maxGrants)}
			}
			grant, err := one(strings.Trim(text, " \t"))
			if err != nil {
				return nil, err
			}
			if seen[grant.Resource] {
				return nil, &fence.InvalidGrantError{Part: "resource", Reason: "has two grants: " + grant.Resource}
			}
			seen[grant.Resource] = true
			grants = append(grants, grant)
		}
	}
	return grants, nil
}
