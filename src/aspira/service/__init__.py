"""What a request means, whatever its protocol: every frontend ends here."""
