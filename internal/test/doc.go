// Package test is the workshop: what tests, demonstrations and measurements are made of, from servers, faults and the
// model of the protocol to the tests of the whole. Nothing that services import needs it: package imports checks that.
package test
