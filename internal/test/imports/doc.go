// Package imports holds the test of what each package may depend on, so that a
// service which merely carries or checks grants links neither gRPC nor a driver.
package imports
